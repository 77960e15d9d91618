// The contract through the TypeScript SDK.

import { contractBy } from "../contract/by-driver.ts";
import { sdkDriver } from "../contract/sdk-driver.ts";

contractBy(sdkDriver);
