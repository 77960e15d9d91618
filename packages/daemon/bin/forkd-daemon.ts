#!/usr/bin/env node
// The daemon's process.

import { runDaemon } from "../src/run.ts";

// oxlint-disable-next-line unicorn/no-process-exit -- the one place where this process ends, whatever is still open
process.exit(await runDaemon(process.argv.slice(2)));
