// Shared set-up of benchmarks: a runtime, an image with numpy, a warm snapshot, and its removal.

import { randomBytes } from "node:crypto";
import { buildImage, prepareHome, resolveHome, Runtime } from "@forkd/runtime";

import type { Home, Progress, Snapshot, SnapshotTimings } from "@forkd/runtime";

export const IMAGE = "python-numpy";

export type BenchOptions = { progress: Progress; signal: AbortSignal };

export async function startRuntime(opts: BenchOptions & { parallelism?: number }): Promise<Runtime> {
  const home = await prepareHome(resolveHome());
  await ensureImage(home, opts);
  return Runtime.start({ home, ...opts });
}

/** Quick when it is there */
export async function ensureImage(home: Home, opts: BenchOptions): Promise<void> {
  await buildImage(home, { name: IMAGE, packages: ["python3", "python3-numpy"], copy: [], run: [], ...opts });
}

export async function warmSnapshot(
  runtime: Runtime,
  memoryMiB: number,
  opts: BenchOptions,
): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
  return runtime.createSnapshot({
    tag: `bench-${randomBytes(6).toString("hex")}`,
    image: IMAGE,
    memoryMiB,
    warmUp: { kernels: [{ language: "python", code: "import numpy; numpy.zeros(5).tolist()" }] },
    ...opts,
  });
}

/** Ends every sandbox of the runtime */
export async function killAll(runtime: Runtime): Promise<void> {
  await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
}
