// The steps of the demo; print.ts formats them.

import { randomBytes } from "node:crypto";
import { buildImage, countLeftovers, ForkdError, prepareHome, resolveHome, Runtime } from "@forkd/runtime";

import type { Progress, Sandbox } from "@forkd/runtime";

const IMAGE = "python-numpy";
const PACKAGES = ["python3", "python3-numpy"];
const CHILDREN = 10;
const GRANDCHILDREN = 3;
const MEMORY_MIB = 256;

/** A computation long enough to be branched in its middle */
const COMPUTATION = `
import time
steps, total = 0, 0
for i in range(40):
    total += int((numpy.arange(1000) * i).sum())
    steps += 1
    if steps == 15: print("branch me")
    time.sleep(0.03)
total
`;

export type DemoChild = { id: string; fork_ms: number; first_eval_ms: number; value: unknown };

export type DemoReport = {
  accelerator: "kvm" | "tcg";
  reason: string;
  confinement: "namespaces" | "none";
  confinement_reason: string | null;
  parent: { tag: string; boot_ms: number; warm_up_ms: number; freeze_ms: number; memory_mib: number };
  children: DemoChild[];
  /** from the request for all of them until the last answered */
  children_ms: number;
  branch: { tag: string; source: string; pause_ms: number; ready_ms: number; delta_bytes: number };
  /** result of the source's computation */
  source_value: unknown;
  grandchildren: DemoChild[];
  leftovers: number;
};

type Progression = { progress: Progress; signal: AbortSignal };

export async function runDemo(opts: Progression): Promise<DemoReport> {
  const home = await prepareHome(resolveHome());
  await buildImage(home, { name: IMAGE, packages: PACKAGES, copy: [], run: [], ...opts });
  const suffix = randomBytes(4).toString("hex");
  const parentTag = `demo-${suffix}`;
  const branchTag = `demo-${suffix}-branch`;
  const runtime = await Runtime.start({ home, ...opts });
  let report: Omit<DemoReport, "leftovers">;
  try {
    report = await forkBranchFork(runtime, { parentTag, branchTag }, opts);
  } finally {
    await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
    for (const tag of [branchTag, parentTag]) await removeIfThere(runtime, tag);
    await runtime.close();
  }
  return { ...report, leftovers: await countLeftovers(runtime.runDir) };
}

async function forkBranchFork(
  runtime: Runtime,
  tags: { parentTag: string; branchTag: string },
  opts: Progression,
): Promise<Omit<DemoReport, "leftovers">> {
  const { snapshot, timings } = await runtime.createSnapshot({
    tag: tags.parentTag,
    image: IMAGE,
    memoryMiB: MEMORY_MIB,
    warmUp: { kernels: [{ language: "python", code: "import numpy; numpy.arange(10).sum()" }] },
    ...opts,
  });
  opts.progress({ step: `Forking ${CHILDREN} children` });
  const requested = performance.now();
  const forked = await Promise.all(
    Array.from({ length: CHILDREN }, async (_, i) => {
      const sandbox = await runtime.forkOne(snapshot, { signal: opts.signal });
      return { sandbox, row: await ask(sandbox, `int((numpy.arange(100) * ${i}).sum())`) };
    }),
  );
  const childrenMs = performance.now() - requested;
  const source = forked[0]?.sandbox;
  if (!source) throw new ForkdError("FORK_FAILED", "The demo has no child to branch.");

  opts.progress({ step: "Branching a child in the middle of its work" });
  const asked = Promise.withResolvers<void>();
  const computation = source.eval(COMPUTATION, { onStdout: () => asked.resolve(), signal: opts.signal });
  await Promise.race([asked.promise, computation]);
  const began = performance.now();
  const branch = await runtime.branch(source, tags.branchTag);
  const outcomes = await runtime.fork(branch.snapshot, { n: GRANDCHILDREN, allOrNothing: true, signal: opts.signal });
  const grandchildren = outcomes.flatMap((outcome) => (outcome.sandbox ? [outcome.sandbox] : []));
  await Promise.all(grandchildren.map(async (sandbox) => sandbox.ping()));
  const readyMs = performance.now() - began;
  // each fork finishes the inherited computation, then runs its own
  const rows = await Promise.all(
    grandchildren.map(async (sandbox, i) => ask(sandbox, `[total, ${JSON.stringify(["left", "right", "straight on"][i])}]`)),
  );
  const sourceResult = await computation;
  return {
    accelerator: runtime.accelerator.accelerator,
    reason: runtime.accelerator.reason,
    confinement: runtime.confinement.kind,
    confinement_reason: runtime.confinement.reason,
    parent: {
      tag: tags.parentTag,
      boot_ms: round(timings.bootMs),
      warm_up_ms: round(timings.warmUpMs),
      freeze_ms: round(timings.freezeMs),
      memory_mib: MEMORY_MIB,
    },
    children: forked.map(({ row }) => row),
    children_ms: round(childrenMs),
    branch: {
      tag: tags.branchTag,
      source: source.id,
      pause_ms: round(branch.pauseMs),
      ready_ms: round(readyMs),
      delta_bytes: branch.deltaBytes,
    },
    source_value: sourceResult.json,
    grandchildren: rows,
  };
}

async function ask(sandbox: Sandbox, code: string): Promise<DemoChild> {
  const began = performance.now();
  const result = await sandbox.eval(code, { timeoutMs: 60_000 });
  if (result.error) throw new ForkdError("FORK_FAILED", `Sandbox ${sandbox.id} answered with an error: ${result.error.traceback}`);
  return { id: sandbox.id, fork_ms: round(sandbox.forkMs), first_eval_ms: round(performance.now() - began), value: result.json };
}

async function removeIfThere(runtime: Runtime, tag: string): Promise<void> {
  try {
    await runtime.removeSnapshot(tag);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") throw error;
  }
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}
