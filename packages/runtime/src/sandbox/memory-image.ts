// The memory image that a VM maps: the one of its snapshot, or of a snapshot below it. A copy of a branch's source maps the
// image of its source and has the pages of the branch as its own.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";

/** Delta files between a snapshot below and the memory of a snapshot, oldest first; none for the snapshot itself */
export async function deltasAbove(snapshots: Pick<SnapshotStore, "byId">, snapshot: Snapshot, below: string): Promise<string[]> {
  const deltas: string[] = [];
  let current = snapshot;
  for (let depth = 0; current.manifest.id !== below; depth++) {
    const { memory, tag } = current.manifest;
    if (memory.kind === "base" || depth > snapshot.manifest.depth)
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${tag}: it does not build on ${below}.`);
    deltas.unshift(...current.deltas);
    current = await snapshots.byId(memory.base);
  }
  return deltas;
}

/** Records in a VM's folder which snapshot's image it maps, for a process that adopts the VM */
export async function recordImage(dir: string, id: string): Promise<void> {
  await writeFile(recordIn(dir), id, { mode: 0o600, flag: "wx" });
}

/** Undefined: the VM maps the image of its snapshot */
export async function recordedImage(dir: string): Promise<string | undefined> {
  try {
    return await readFile(recordIn(dir), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  }
}

function recordIn(dir: string): string {
  return join(dir, "memory-of");
}
