#!/usr/bin/env node
// The daemon's process.

import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Types are stripped once and not at every start: half the CPU of a start, and some 25 MiB less for as long as it runs. This file
// is plain JavaScript for the same reason: a typed one would load the stripper before the cache can be asked.
// Not the default folder: /tmp is shared with other users, and what lies in the cache is executed.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "forkd", "node"));

const { runDaemon } = await import("../src/main.ts");

// oxlint-disable-next-line unicorn/no-process-exit -- the one place where this process ends, whatever is still open
process.exit(await runDaemon(process.argv.slice(2)));
