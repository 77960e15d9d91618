// The contract through the Python SDK.

import { it } from "node:test";
import { contractBy } from "../contract/by-driver.ts";
import { WITHOUT_METHOD } from "../contract/left-out.ts";
import { pythonDriver, withoutPython } from "../contract/python-driver.ts";

const noPython = withoutPython();

if (noPython === false) contractBy(pythonDriver, { without: WITHOUT_METHOD });
else it("the contract by python", { skip: noPython });
