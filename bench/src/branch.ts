// How long a source stands still at a branch, as the host and as the guest see it, and how soon a grandchild answers.

import { randomBytes } from "node:crypto";
import { ForkdError } from "@forkd/daemon";
import { describeMachine, type Machine } from "./machine.ts";
import { killAll, startRuntime, warmSnapshot, type BenchOptions } from "./setup.ts";
import { median, percentiles, round, type Percentiles } from "./stats.ts";

import type { Runtime, Sandbox, Snapshot } from "@forkd/daemon";

/**
 * Ticks every millisecond and keeps the largest gap; SIGUSR1 prints and forgets it. On the wall clock, which is set right
 * after the pause: the guest's other clocks stand still with it.
 */
const TICKER = `
import os, signal, time
largest = 0.0
def tell(*_):
    global largest
    gap, largest = largest, 0.0
    os.write(1, b"%f\\n" % (gap * 1000))
signal.signal(signal.SIGUSR1, tell)
os.write(1, b"ticking\\n")
last = time.time()
while True:
    time.sleep(0.001)
    now = time.time()
    largest = max(largest, now - last)
    last = now
`;

export type BranchRow = {
  ram_mib: number;
  changed_mib: number;
  pause_host_ms: Percentiles;
  pause_guest_ms: Percentiles;
  /** the guest's largest gap over as long a time without a branch */
  idle_guest_ms: Percentiles;
  /** host pause of the first and the tenth branch of the source */
  pause_first_ms: number;
  pause_tenth_ms: number;
  /** from the request to branch until the first grandchild answered an eval, median */
  ready_ms: number;
  stored_bytes: number;
  changed_bytes: number;
};

export type BranchReport = { machine: Machine; method: string; branches: number; rows: BranchRow[] };

export type BranchBenchOptions = BenchOptions & { branches: number; ramMib: number[]; changedMib: number[] };

export async function benchBranch(opts: BranchBenchOptions): Promise<BranchReport> {
  await using runtime = await startRuntime(opts);
  const rows: BranchRow[] = [];
  for (const ramMib of opts.ramMib) {
    const { snapshot } = await warmSnapshot(runtime, ramMib, opts);
    try {
      for (const changedMib of opts.changedMib) {
        opts.progress({ step: `${ramMib} MiB of RAM, ${changedMib} MiB changed` });
        rows.push(await measureRow(runtime, snapshot, { ramMib, changedMib, branches: opts.branches, signal: opts.signal }));
      }
    } finally {
      await killAll(runtime);
      await runtime.removeSnapshot(snapshot.manifest.tag);
    }
  }
  return {
    machine: describeMachine(runtime),
    method: `${opts.branches} branches of one source for each row, while a program in it ticks every millisecond; every third branch is forked and asked for 1 + 1`,
    branches: opts.branches,
    rows,
  };
}

type RowOptions = { ramMib: number; changedMib: number; branches: number; signal: AbortSignal };
type Sample = { hostMs: number; guestMs: number; idleMs: number; readyMs: number | undefined; storedBytes: number; changedBytes: number };

async function measureRow(runtime: Runtime, snapshot: Snapshot, opts: RowOptions): Promise<BranchRow> {
  const source = await runtime.forkOne(snapshot, { signal: opts.signal });
  try {
    await source.eval(`import os\nblob = bytearray(os.urandom(1 << 20)) * ${opts.changedMib}\nNone`, { timeoutMs: 120_000 });
    const ticker = await startTicker(source);
    const samples: Sample[] = [];
    for (let i = 0; i < opts.branches; i++) {
      opts.signal.throwIfAborted();
      samples.push(await measureBranch(runtime, source, ticker, i % 3 === 0));
    }
    return {
      ram_mib: opts.ramMib,
      changed_mib: opts.changedMib,
      pause_host_ms: percentiles(samples.map((sample) => sample.hostMs)),
      pause_guest_ms: percentiles(samples.map((sample) => sample.guestMs)),
      idle_guest_ms: percentiles(samples.map((sample) => sample.idleMs)),
      pause_first_ms: round(samples[0]?.hostMs ?? Number.NaN),
      pause_tenth_ms: round(samples[9]?.hostMs ?? Number.NaN),
      ready_ms: median(samples.flatMap((sample) => sample.readyMs ?? [])),
      stored_bytes: median(samples.map((sample) => sample.storedBytes)),
      changed_bytes: median(samples.map((sample) => sample.changedBytes)),
    };
  } finally {
    await source.kill();
  }
}

type Ticker = { largestGapMs: () => Promise<number> };

async function startTicker(source: Sandbox): Promise<Ticker> {
  let waiting = Promise.withResolvers<string>();
  let text = "";
  let lastWords = "";
  const process = await source.start(["python3", "-c", TICKER]);
  const running = process.finish((channel, bytes) => {
    if (channel === "stderr") lastWords += bytes.toString();
    text += bytes.toString();
    if (!text.endsWith("\n")) return;
    waiting.resolve(text.trim());
    text = "";
  });
  const ended = running.then((status) => {
    throw new ForkdError("EXEC_FAILED", `The ticking program ended: ${JSON.stringify(status)} ${lastWords}`);
  });
  ended.catch(() => undefined); // raced below
  await Promise.race([waiting.promise, ended]);
  return {
    largestGapMs: async () => {
      waiting = Promise.withResolvers();
      process.signal("SIGUSR1", "process");
      const answer = await Promise.race([waiting.promise, ended]);
      const gap = Number(answer);
      // what is no number is the beginning of its last words
      return Number.isNaN(gap) ? ended : gap;
    },
  };
}

async function measureBranch(runtime: Runtime, source: Sandbox, ticker: Ticker, askGrandchild: boolean): Promise<Sample> {
  await ticker.largestGapMs();
  await settle();
  const idleMs = await ticker.largestGapMs();
  const tag = `bench-${randomBytes(6).toString("hex")}`;
  const began = performance.now();
  const branch = await runtime.branch(source, tag);
  let readyMs: number | undefined;
  if (askGrandchild) {
    const grandchild = await runtime.forkOne(branch.snapshot);
    const answer = await grandchild.eval("1 + 1", { timeoutMs: 60_000 });
    if (answer.json !== 2) throw new ForkdError("FORK_FAILED", `A grandchild answered ${JSON.stringify(answer)}.`);
    readyMs = performance.now() - began;
    await grandchild.kill();
  }
  await settle();
  const guestMs = await ticker.largestGapMs();
  await runtime.removeSnapshot(tag);
  return { hostMs: branch.pauseMs, guestMs, idleMs, readyMs, storedBytes: branch.deltaBytes, changedBytes: branch.changedPages * 4096 };
}

async function settle(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 60));
}
