// Worker thread of the fuzzer: mutates inputs and keeps those with new coverage. fuzz.ts starts and watches it.

import { setImmediate as turn } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Random } from "../../tests/helpers/random.ts";
import { Coverage } from "./coverage.ts";
import { mutate } from "./mutate.ts";

import type { Target } from "./target.ts";

/** Inputs between two coverage measurements, which take some milliseconds each */
const BATCH = 128;
/** Maximum number of inputs kept only because the target reported a new outcome */
const MOST_OUTCOMES = 300;
/** Time limit of an input: a multiple of the average, or an absolute minimum */
const SLOW_TIMES = 200;
const SLOW_MS = 250;
/** Number of repetitions that must also exceed the limit in CPU time: on a busy machine any input can be slow */
const SLOW_TRIES = 3;
/** Memory that one input may hold until it is collected */
const MOST_BYTES_OF_ONE = 128 * 1024 * 1024;
/** Memory that all inputs together may leak */
const MOST_BYTES_OF_ALL = 64 * 1024 * 1024;

/** Options of the worker thread */
export type SearchOptions = {
  /** module that exports `target` */
  module: string;
  /** URL prefixes */
  sources: string[];
  corpus: Uint8Array[];
  /** of CPU time */
  seconds: number;
  seed: number;
  /** number of the run, length and content of the current input: the watching thread reads it if this one hangs */
  current: SharedArrayBuffer;
};

export type Found = { why: string; input: Uint8Array };
export type Summary = {
  runs: number;
  ms: number;
  /** inputs that execute code which neither the corpus nor earlier inputs execute */
  added: Uint8Array[];
  outcomes: number;
  /** number of characters of the sources */
  coverage: { covered: number; all: number };
};
export type SearchEvent = { type: "found"; found: Found } | { type: "done"; summary: Summary };

class Finding extends Error {
  readonly input: Buffer;

  constructor(why: string, input: Buffer) {
    super(why);
    this.input = input;
  }
}

const options = workerData as SearchOptions;
const random = new Random(options.seed);
const head = new Int32Array(options.current, 0, 2);
const room = new Uint8Array(options.current, 8);
/** An uncaught exception or unhandled rejection */
let stray: { error: unknown } | undefined;
process.on("uncaughtException", (error) => (stray ??= { error }));
process.on("unhandledRejection", (error) => (stray ??= { error }));
setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

// start before the target is loaded, so that top-level code counts as executed
const coverage = new Coverage(options.sources);
const { target } = (await import(options.module)) as { target: Target };
const opened = await target.open?.();
const event: SearchEvent = await search().then(
  (summary) => ({ type: "done", summary }),
  (error: unknown) => ({ type: "found", found: foundIn(error) }),
);
await opened?.[Symbol.asyncDispose]();
coverage.close();
// last: the watching thread terminates this one on the event, and temporary folders would remain
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
parentPort?.postMessage(event);

function foundIn(error: unknown): Found {
  if (error instanceof Finding) return { why: error.message, input: error.input };
  return { why: `the search itself failed: ${describe(error)}`, input: new Uint8Array(0) };
}

async function search(): Promise<Summary> {
  const from = performance.now();
  const pool: Buffer[] = options.corpus.map((bytes) => Buffer.from(bytes));
  const outcomes = new Set<string>();
  const added: Buffer[] = [];
  const spent = { runs: 0, ms: 0 };
  for (const outcome of await runBatch(pool, spent)) outcomes.add(outcome);
  coverage.grew();
  const bytesBefore = usedBytes();
  let kept = 0;
  while (!isOver()) {
    const batch = Array.from({ length: BATCH }, () => nextInput(pool));
    for (const [at, outcome] of (await runBatch(batch, spent, isOver)).entries()) {
      if (outcomes.has(outcome) || kept >= MOST_OUTCOMES) continue;
      outcomes.add(outcome);
      kept++;
      pool.push(batch[at] ?? Buffer.alloc(0));
    }
    // coverage is per batch, so each input runs again by itself
    if (!coverage.grew({ later: true })) continue;
    for (const input of batch) {
      if (isOver()) break;
      await runOne(input, spent);
      if (!coverage.grew()) continue;
      added.push(input);
      pool.push(input);
    }
    coverage.settle();
  }
  const more = usedBytes() - bytesBefore - pool.reduce((sum, { length }) => sum + length, 0);
  if (more > MOST_BYTES_OF_ALL)
    throw new Finding(`memory grows: ${more} bytes more after ${spent.runs} inputs`, pool.at(-1) ?? Buffer.alloc(0));
  return { runs: spent.runs, ms: performance.now() - from, added, outcomes: outcomes.size, coverage: coverage.size };
}

/** CPU time of this thread: beside other programs, a search is as long as on an idle machine */
function isOver(): boolean {
  const { user, system } = process.threadCpuUsage();
  return user + system >= options.seconds * 1_000_000;
}

function nextInput(pool: readonly Buffer[]): Buffer {
  // prefer newer inputs: they lead to code that was not reached yet
  const from = random.below(2) === 0 ? Math.floor(pool.length / 2) : 0;
  const chosen = pool[from + random.below(pool.length - from)] ?? Buffer.alloc(0);
  const { tokens, maxBytes } = target;
  const material = { random, tokens, others: pool, maxBytes };
  if (!target.mutate) return mutate(chosen, material);
  const plain = random.below(4) === 0;
  return plain
    ? mutate(chosen, material)
    : target.mutate(random.below(3) === 0 ? mutate(chosen, material) : chosen, random).subarray(0, maxBytes);
}

/**
 * Runs inputs and returns their outcomes. A failure outside run() shows only at the end; the inputs are then repeated
 * one by one
 */
async function runBatch(
  batch: readonly Buffer[],
  spent: { runs: number; ms: number },
  isEnough: () => boolean = () => false,
): Promise<string[]> {
  const outcomes: string[] = [];
  for (const input of batch) {
    if (isEnough()) break;
    outcomes.push(await runOne(input, spent));
  }
  await turn();
  if (stray === undefined) return outcomes;
  const { error } = stray;
  for (const input of batch) {
    stray = undefined;
    await runOne(input, spent);
    await turn();
    if (stray !== undefined) throw new Finding(describe(error), input);
  }
  throw new Finding(`${describe(error)}, once and not again with any of the last ${batch.length} inputs`, batch.at(-1) ?? Buffer.alloc(0));
}

async function runOne(input: Buffer, spent: { runs: number; ms: number }): Promise<string> {
  announce(input);
  const before = heldBytes();
  const from = performance.now();
  let outcome: string;
  try {
    const running = target.run(input);
    outcome = typeof running === "string" ? running : await running;
  } catch (error) {
    throw new Finding(describe(error), input);
  }
  const ms = performance.now() - from;
  const limit = Math.max(SLOW_MS, SLOW_TIMES * (spent.ms / Math.max(1, spent.runs)));
  if (ms > limit) await checkSlow(input, limit);
  const bytes = heldBytes() - before;
  if (bytes > MOST_BYTES_OF_ONE) throw new Finding(`it takes ${bytes} bytes of memory`, input);
  spent.runs++;
  spent.ms += ms;
  return outcome;
}

async function checkSlow(input: Buffer, limit: number): Promise<void> {
  let quickest = Infinity;
  for (let left = SLOW_TRIES; left > 0; left--) {
    const from = process.threadCpuUsage();
    await target.run(input);
    const { user, system } = process.threadCpuUsage(from);
    quickest = Math.min(quickest, (user + system) / 1000);
  }
  if (quickest > limit) throw new Finding(`it takes ${Math.round(quickest)} ms, more than ${Math.round(limit)} ms`, input);
}

/** Stores the input where the watching thread finds it if this one hangs */
function announce(input: Buffer): void {
  room.set(input.subarray(0, room.length));
  Atomics.store(head, 1, Math.min(input.length, room.length));
  Atomics.add(head, 0, 1);
}

function heldBytes(): number {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
}

function usedBytes(): number {
  collectGarbage();
  return heldBytes();
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
