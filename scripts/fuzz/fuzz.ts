// Fuzzes one target in a worker thread, so that an input that hangs it or fills its memory can be reported.

import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { ROOT } from "./target.ts";
import { FOUND } from "./targets.ts";

import type { Found, SearchEvent, SearchOptions, Summary } from "./search.ts";
import type { Target } from "./target.ts";

/** An input that takes more CPU time counts as a hang */
const HANG_MS = 20_000;
/** So does one that waits for many times as long; on a busy machine any input can take long */
const WAITS_TIMES = 30;
const LOOK_MS = 1000;
const HEAP_MIB = 512;

export type Fuzzed = { found: Found; summary: null } | { found: null; summary: Summary };

/** `seconds` of CPU time */
export type FuzzOptions = { corpus: readonly Buffer[]; seconds: number; seed: number; hangMs?: number };

/** @param module path of the file that exports `target` */
export async function fuzz(module: string, opts: FuzzOptions): Promise<Fuzzed> {
  const url = pathToFileURL(module).href;
  const { target } = (await import(url)) as { target: Target };
  const current = new SharedArrayBuffer(8 + target.maxBytes);
  const head = new Int32Array(current, 0, 2);
  const workerData: SearchOptions = {
    module: url,
    corpus: [...opts.corpus],
    seconds: opts.seconds,
    seed: opts.seed,
    current,
    sources: target.sources.map((source) => pathToFileURL(join(ROOT, source)).href),
  };
  const worker = new Worker(join(import.meta.dirname, "search.ts"), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  });
  const { promise, resolve } = Promise.withResolvers<Fuzzed>();
  const running = (why: string): Found => ({ why, input: new Uint8Array(current, 8, Atomics.load(head, 1)).slice() });
  worker.on("message", (event: SearchEvent) => {
    resolve(event.type === "done" ? { found: null, summary: event.summary } : { found: event.found, summary: null });
  });
  // an exception outside run(), an unhandled rejection, or a full heap
  worker.on("error", (error) =>
    resolve({ found: running(error instanceof Error ? (error.stack ?? error.message) : String(error)), summary: null }),
  );
  const { hangMs = HANG_MS } = opts;
  let last = { input: -1, cpuMs: 0, at: 0 };
  const look = async (): Promise<void> => {
    const { user, system } = await worker.cpuUsage();
    const now = { input: Atomics.load(head, 0), cpuMs: (user + system) / 1000, at: performance.now() };
    if (now.input !== last.input) last = now;
    else if (now.cpuMs - last.cpuMs > hangMs || now.at - last.at > WAITS_TIMES * hangMs)
      resolve({ found: running(`it does not end within ${hangMs} ms`), summary: null });
  };
  // it fails when the thread has ended, which is an event of its own
  const watch = setInterval(() => void look().catch(() => undefined), Math.min(LOOK_MS, hangMs));
  try {
    const fuzzed = await promise;
    return fuzzed;
  } finally {
    clearInterval(watch);
    await worker.terminate();
  }
}

/** Saves the input and returns the command that runs it again */
export async function saveFound(name: string, { input }: Found): Promise<string> {
  const path = join(FOUND, name, hashOf(input));
  await mkdir(join(FOUND, name), { recursive: true });
  await writeFile(path, input);
  return `again: node_modules/.bin/node scripts/fuzz/main.ts ${name} --replay ${relative(ROOT, path)}`;
}

/** Hash of an input, used as its file name */
export function hashOf(input: Uint8Array): string {
  return createHash("sha1").update(input).digest("hex").slice(0, 12);
}
