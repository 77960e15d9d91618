// The contract through the TypeScript SDK.

import { contractBy } from "../contract/by-driver.ts";
import { WITHOUT_METHOD } from "../contract/left-out.ts";
import { sdkDriver } from "../contract/sdk-driver.ts";

contractBy(sdkDriver, { without: WITHOUT_METHOD });
