// Pause of the source of a branch, on the host and in the guest, the time until a grandchild answers, and the bytes that
// the fourth branch of a source stores.

import { randomBytes } from "node:crypto";
import { open } from "node:fs/promises";
import { ForkdError } from "@forkd/runtime";
import { describeMachine, type Machine } from "./machine.ts";
import { killAll, startRuntime, warmSnapshot, type BenchOptions } from "./setup.ts";
import { median, percentiles, round, type Percentiles } from "./stats.ts";

import type { BranchResult, Runtime, Sandbox, Snapshot } from "@forkd/runtime";

const PAGE = 4096;
const COMPARED_BYTES = 1024 * 1024;

/**
 * Ticks every millisecond and keeps the largest gap; SIGUSR1 prints and resets it. Uses the wall clock, which is set right
 * after the pause: the guest's other clocks stop during it.
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
  /** added to the store by a branch, median */
  stored_bytes: number;
  /** pages that differ from the snapshot the source was forked from, median */
  changed_bytes: number;
  /** by the fourth branch of a source that changes a tenth of its data between two branches */
  fourth_stored_bytes: number;
  /** pages of the fourth branch that differ from the third */
  fourth_changed_bytes: number;
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
    method: `${opts.branches} branches of one source for each row, while a program in it ticks every millisecond; every third branch is forked and asked for 1 + 1. The fourth branch: of another source, which changes a tenth of its data between two branches; the memory images of the third and the fourth are compared`,
    branches: opts.branches,
    rows,
  };
}

type RowOptions = { ramMib: number; changedMib: number; branches: number; signal: AbortSignal };
type Sample = { hostMs: number; guestMs: number; idleMs: number; readyMs: number | undefined; storedBytes: number; changedBytes: number };

async function measureRow(runtime: Runtime, snapshot: Snapshot, opts: RowOptions): Promise<BranchRow> {
  const source = await runtime.forkOne(snapshot, { signal: opts.signal });
  const tags: string[] = [];
  try {
    await source.eval(`import os\nblob = bytearray(os.urandom(1 << 20)) * ${opts.changedMib}\nNone`, { timeoutMs: 120_000 });
    const ticker = await startTicker(source);
    const samples: Sample[] = [];
    for (let i = 0; i < opts.branches; i++) {
      opts.signal.throwIfAborted();
      samples.push(await measureBranch(runtime, source, ticker, i % 3 === 0, tags));
    }
    return {
      ...(await measureFourth(runtime, snapshot, opts)),
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
    for (const tag of tags) await runtime.removeSnapshot(tag);
  }
}

async function measureFourth(
  runtime: Runtime,
  snapshot: Snapshot,
  { changedMib, signal }: RowOptions,
): Promise<Pick<BranchRow, "fourth_stored_bytes" | "fourth_changed_bytes">> {
  const source = await runtime.forkOne(snapshot, { signal });
  const branches: BranchResult[] = [];
  const step = Math.max(1, Math.round(changedMib / 10));
  try {
    await source.eval(`import os\nblob = bytearray(os.urandom(1 << 20)) * ${changedMib}\nNone`, { timeoutMs: 120_000 });
    for (let i = 0; i < 4; i++) {
      const from = (i * step) % changedMib;
      const code = `for i in range(${from}, ${Math.min(from + step, changedMib)}): blob[i << 20:i + 1 << 20] = os.urandom(1 << 20)`;
      await source.eval(`${code}\nNone`, { timeoutMs: 120_000 });
      branches.push(await runtime.branch(source, `bench-${randomBytes(6).toString("hex")}`));
    }
    const [third, fourth] = [branches[2], branches[3]];
    if (!third || !fourth) throw new ForkdError("BRANCH_FAILED", "Four branches were not made.");
    return { fourth_stored_bytes: fourth.deltaBytes, fourth_changed_bytes: await difference(runtime, third.snapshot, fourth.snapshot) };
  } finally {
    await source.kill();
    for (const branch of branches) await runtime.removeSnapshot(branch.snapshot.manifest.tag);
  }
}

/** Bytes of the pages in which two memory images differ */
async function difference(runtime: Runtime, one: Snapshot, other: Snapshot): Promise<number> {
  const first = await runtime.flats.acquire(one);
  const second = await runtime.flats.acquire(other);
  try {
    await using a = await open(first.path, "r");
    await using b = await open(second.path, "r");
    const [left, right] = [Buffer.alloc(COMPARED_BYTES), Buffer.alloc(COMPARED_BYTES)];
    const { size } = await a.stat();
    let bytes = 0;
    for (let at = 0; at < size; at += COMPARED_BYTES) {
      await Promise.all([a.read(left, 0, COMPARED_BYTES, at), b.read(right, 0, COMPARED_BYTES, at)]);
      if (left.equals(right)) continue;
      for (let page = 0; page < COMPARED_BYTES; page += PAGE)
        if (left.compare(right, page, page + PAGE, page, page + PAGE) !== 0) bytes += PAGE;
    }
    return bytes;
  } finally {
    first.release();
    second.release();
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
      // output that is not a number is the beginning of an error message
      return Number.isNaN(gap) ? ended : gap;
    },
  };
}

/** @param tags the branch's tag is added: the next branch stores what changed since this one */
async function measureBranch(runtime: Runtime, source: Sandbox, ticker: Ticker, askGrandchild: boolean, tags: string[]): Promise<Sample> {
  await ticker.largestGapMs();
  await settle();
  const idleMs = await ticker.largestGapMs();
  const tag = `bench-${randomBytes(6).toString("hex")}`;
  const began = performance.now();
  const branch = await runtime.branch(source, tag);
  tags.push(tag);
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
  return { hostMs: branch.pauseMs, guestMs, idleMs, readyMs, storedBytes: branch.deltaBytes, changedBytes: branch.changedPages * PAGE };
}

async function settle(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 60));
}
