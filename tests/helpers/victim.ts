// A process that forks children of a snapshot, prints their pids and waits to be killed.
// Usage: node victim.ts TAG N

import { Runtime } from "@forkd/runtime";
import { ownChildren } from "./host.ts";

const [tag = "", n = "1"] = process.argv.slice(2);
const runtime = await Runtime.start();
const outcomes = await runtime.fork(tag, { n: Number(n), allOrNothing: true });
const pids = outcomes.flatMap(({ sandbox }) => (sandbox ? [sandbox.vm.pid] : []));
process.stdout.write(`${JSON.stringify({ runDir: runtime.runDir, pids, wardens: ownChildren("forkd-warden") })}\n`);
setInterval(() => undefined, 60_000);
