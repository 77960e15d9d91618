#!/usr/bin/env node
// The forkd command. Everything slow is imported by the command that needs it.

import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Plain JavaScript, so that the TypeScript loader is only loaded when the compile cache does not have a module.
// Not the default folder: /tmp is shared with other users, and the cached code is executed.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "forkd", "node"));

const { main } = await import("../src/main.ts");
await main(process.argv);
