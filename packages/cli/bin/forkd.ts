// The forkd command. Everything slow is imported by the command that needs it.

import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Not the default folder: /tmp is shared with other users, and what lies in the cache is executed.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "forkd", "node"));

const { main } = await import("../src/main.ts");
await main(process.argv);
