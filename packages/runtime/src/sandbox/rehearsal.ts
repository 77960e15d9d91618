// Warm-up of a zygote: runs the code paths of a fork once, so that the engine has translated them before VMs are cloned. No
// code of the user runs: processes of the snapshot stay held, except idle interpreters, which run only the code in this
// file.

import { randomBytes } from "node:crypto";
import { GuestFiles } from "../agent/files/client.ts";
import { holdProcesses, rehearse as keepHeld } from "../agent/hold.ts";
import { Kernel } from "../agent/kernel/kernel.ts";
import { ProcessRegistry } from "../agent/process/registry.ts";
import { runProgram } from "../agent/process/run.ts";
import { startResync } from "../agent/resync.ts";
import { AgentConnection } from "../agent/wire/connection.ts";
import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";

const WITHIN_MS = 60_000;
/** In the agent's own folder, which programs do not read */
const FILE = "/run/forkd/rehearsal";

/**
 * Statements that compile, call and clean up: what most code does, so that the engine translates it once for all clones.
 * They must not set timers of the process
 */
const STATEMENTS = `def _forkd_rehearsal(count, *rest, factor=1.5):
    class Part:
        def __init__(self, value):
            self.value = value
        @property
        def twice(self):
            return self.value * 2
    parts = [Part(float(i)) for i in range(count) if i % 3 != 1]
    table = {str(part.value): part.twice for part in parts}
    total = 0.0
    for name, value in sorted(table.items(), key=lambda item: -item[1]):
        total += value / 2 - abs(-1) + len(name) + factor ** 2 + int("7") // 2
    try:
        table["missing"]
    except KeyError as error:
        words = f"{error!r} {total:.2f} {count:>4}".split() + ["a,b".replace(",", "-").upper(), "%d" % count]
    first, *others = words
    while count > 0:
        count -= 1
    return [total, tuple(others), dict(zip("ab", (True, None))), sum(map(int, rest)), max(2, min([3, count])), set(others) | {first}]
_forkd_rehearsal(9, 1, 2, factor=2.5)
del _forkd_rehearsal`;
/** Values of the usual kinds, which the answer formats */
const VALUES =
  "[[0.5 * i for i in range(3)], ['text', b'bytes', None, True], {'key': (1, 2), 'nested': {'list': [10**12]}}, {1.5}, range(3)]";
/** An answer that is also sent as JSON */
const NUMBERS = "[0.25 * i for i in range(4)]";
const TIMERS = "[f\"{__import__('signal').getitimer(i)[0]:.0f}\" for i in (0, 1, 2)]";
const NO_TIMERS = "['0', '0', '0']";

/** Throws if code of the user could run: every clone would continue from its result */
export async function rehearse(socket: string, first: AgentConnection, { manifest }: Snapshot, id: string): Promise<void> {
  const kernels = await attach(first, manifest, id);
  for (const kernel of kernels) await rehearseKernel(kernel);
  await unlessMissing(runProgram(new ProcessRegistry(first), ["true"], { timeoutMs: WITHIN_MS }));
  const files = new GuestFiles(() => first);
  await files.write(FILE, "rehearsal");
  await files.read(FILE);
  await files.remove(FILE);
  first.close();
  // a clone gets its connection while it is stopped, which its guest sees as a port that closes and opens
  const second = new AgentConnection(socket);
  try {
    for (const kernel of await attach(second, manifest, id)) await rehearseKernel(kernel);
    if (!(await holdProcesses(second, WITHIN_MS))) throw new ForkdError("VMM_FAILED", "Processes could not be held again.");
  } finally {
    second.close();
  }
}

/** Attaches to the interpreters that run */
async function attach(agent: AgentConnection, manifest: Snapshot["manifest"], id: string): Promise<Kernel[]> {
  agent.attach(Buffer.from(manifest.agentKey, "hex"));
  // an interpreter that reseeds itself or has a running eval would do so in every clone
  const idle = manifest.kernels.filter(({ language, reseed, busy }) => language === "python" && reseed === "memory" && !busy);
  const contexts = idle.map(({ context, language }) => context ?? language);
  const free = await keepHeld(agent, contexts, WITHIN_MS);
  if (!free) throw new ForkdError("VMM_FAILED", `Processes of the snapshot ${manifest.tag} run from its first moment on.`);
  const identity = { sandboxId: id, hostname: id, machineId: randomBytes(16).toString("hex"), env: manifest.env };
  const resync = startResync(agent, identity, WITHIN_MS);
  resync.catch(() => undefined); // awaited below
  const kernels = idle.map((facts) => Kernel.attach(agent, facts).kernel);
  await resync;
  return kernels.filter(({ context }) => free.includes(context));
}

async function rehearseKernel(kernel: Kernel): Promise<void> {
  // warm: not counted as an eval of the user
  const opts = { warm: true, timeoutMs: WITHIN_MS };
  await kernel.eval(STATEMENTS, opts);
  for (const expression of [VALUES, NUMBERS]) await kernel.eval(expression, opts);
  const { text } = await kernel.eval(TIMERS, opts);
  if (text !== NO_TIMERS) throw new ForkdError("VMM_FAILED", `A timer is set in the ${kernel.language} kernel, whose handler could run.`);
  await kernel.settled();
}

/** Ignores a missing program: an image need not have it */
async function unlessMissing(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "EXEC_FAILED") throw error;
  }
}
