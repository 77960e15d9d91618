#!/usr/bin/env node
// The forkd command. Everything slow is imported by the command that needs it.

import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Plain JavaScript, so that what strips the types of everything else is only loaded when the cache does not have it.
// Not the default folder: /tmp is shared with other users, and what lies in the cache is executed.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "forkd", "node"));

const { main } = await import("../src/main.ts");
await main(process.argv);
