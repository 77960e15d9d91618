// Packs: speed and compression of a snapshot, compared with the zstd command in the same run.

import { execFile } from "node:child_process";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { pack } from "@forkd/runtime";
import { atLeast, atMost, type Goal } from "./goals.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { IMAGE, startRuntime, type BenchOptions } from "./setup.ts";
import { median, round } from "./stats.ts";

import type { Runtime, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);
/** Numbers that a program might keep: they repeat, and not at once. A quarter of the memory */
const FILL = (mib: number): string => `import numpy; data = numpy.random.default_rng(1).integers(0, 1000, ${(mib / 4) * 131_072})`;

export type PackReport = {
  machine: Machine;
  method: string;
  /** what is packed: the files as they are on disk */
  bytes: number;
  memory_bytes: number;
  pack_ms: number;
  zstd_ms: number;
  memory: { pack_bytes: number; zstd_bytes: number };
  goals: Goal[];
};

export type PackBenchOptions = BenchOptions & { memoryMib: number; level: number; rounds: number };

type Timed = { ms: number; memoryBytes: number };

export async function benchPack(opts: PackBenchOptions): Promise<PackReport> {
  const { memoryMib, level, rounds, signal, progress } = opts;
  await using runtime = await startRuntime(opts);
  const dir = await mkdtemp(join(runtime.home.root, "bench-pack-"));
  const tag = dir.slice(dir.lastIndexOf("/") + 1);
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  progress({ step: "Making the snapshot" });
  const warmUp = { kernels: [{ language: "python" as const, code: FILL(memoryMib) }] };
  const { snapshot } = await runtime.createSnapshot({ tag, image: IMAGE, memoryMiB: memoryMib, warmUp, signal, progress });
  cleanup.defer(async () => runtime.removeSnapshot(tag));
  const files = [snapshot.memory, snapshot.deviceState, (await runtime.images.get(snapshot.manifest.imageId)).rootfsPath];
  const own: Timed[] = [];
  const theirs: Timed[] = [];
  // one round first, so that both find the files in memory
  for (let round = 0; round <= rounds; round++) {
    progress({ step: `Round ${round} of ${rounds}` });
    const [ours, zstd] = [await timePack(runtime, snapshot, dir, opts), await timeZstd(files, dir, level, signal)];
    if (round === 0) continue;
    own.push(ours);
    theirs.push(zstd);
  }
  const measured = {
    bytes: await diskBytes(files),
    memory_bytes: await diskBytes([snapshot.memory]),
    pack_ms: median(own.map(({ ms }) => ms)),
    zstd_ms: median(theirs.map(({ ms }) => ms)),
    memory: { pack_bytes: own[0]?.memoryBytes ?? 0, zstd_bytes: theirs[0]?.memoryBytes ?? 0 },
  };
  return { machine: describeMachine(runtime), method: methodOf(opts), ...measured, goals: goalsOf(measured) };
}

/** With a cache of its own that is empty */
async function timePack(runtime: Runtime, snapshot: Snapshot, dir: string, opts: PackBenchOptions): Promise<Timed> {
  const cache = await mkdtemp(join(dir, "cache-"));
  const stores = { home: { ...runtime.home, cache }, snapshots: runtime.snapshots, images: runtime.images };
  const began = performance.now();
  await using made = await pack.preparePack(stores, snapshot.manifest.tag, { level: opts.level, signal: opts.signal });
  const ms = performance.now() - began;
  await rm(cache, { recursive: true });
  const memoryBytes = made.manifest.blobs.find(({ kind }) => kind === "memory")?.size ?? 0;
  return { ms, memoryBytes };
}

/** Into files, as a pack is */
async function timeZstd(files: readonly string[], dir: string, level: number, signal: AbortSignal): Promise<Timed> {
  let memoryBytes = 0;
  const out = join(dir, "zstd.out");
  const began = performance.now();
  for (const [at, file] of files.entries()) {
    await run("zstd", ["-q", "-f", `-${level}`, `-T${pack.COMPRESS_THREADS}`, file, "-o", out], { signal });
    if (at === 0) memoryBytes = (await stat(out)).size;
  }
  return { ms: performance.now() - began, memoryBytes };
}

async function diskBytes(files: readonly string[]): Promise<number> {
  let bytes = 0;
  for (const file of files) bytes += (await stat(file)).blocks * 512;
  return bytes;
}

function methodOf({ memoryMib, level, rounds }: PackBenchOptions): string {
  return [
    `a base snapshot of ${memoryMib} MiB with numpy and an array in a quarter of it, its memory, device state and image`,
    `medians of ${rounds} rounds in turns after one that is not counted, at level ${level} with ${pack.COMPRESS_THREADS} threads each`,
    `a pack: reading, leaving out zero and duplicate pages, sums before and after, compressing into files of an empty cache, in this process`,
    `zstd: the command on the same files one after the other, its start included, which has no sums but its own`,
  ].join("; ");
}

function goalsOf({ pack_ms: own, zstd_ms: zstd, memory }: Omit<PackReport, "machine" | "method" | "goals">): Goal[] {
  return [
    atLeast("speed of a pack against zstd", round(zstd / own), 0.8, "×"),
    atMost("memory in a pack against zstd's", round(memory.pack_bytes / memory.zstd_bytes), 1.05, "×"),
  ];
}
