// The contract through the CLI.

import { contractBy } from "../contract/by-driver.ts";
import { cliDriver } from "../contract/cli-driver.ts";
import { WITHOUT_VERB } from "../contract/left-out.ts";

contractBy(cliDriver, { without: WITHOUT_VERB });
