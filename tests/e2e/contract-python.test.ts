// The contract through the Python SDK.

import { it } from "node:test";
import { contractBy } from "../contract/by-driver.ts";
import { pythonDriver, withoutPython } from "../contract/python-driver.ts";

const noPython = withoutPython();

if (noPython === false) contractBy(pythonDriver);
else it("the contract by python", { skip: noPython });
