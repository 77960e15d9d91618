// The contract through the REST API.

import { contractBy } from "../contract/by-driver.ts";
import { restDriver } from "../contract/rest-driver.ts";

contractBy(restDriver);
