// A disk is a stack of files. Only the uppermost one is written; the others never change, so any number of disks can share them.

import { link, lstat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import { statIfThere } from "../util/stat-if-there.ts";

export const LAYER_ID = /^dk-[a-z2-7]{16}$/;

/** "raw" is the lowest layer, the complete disk as a sparse file; "qcow2" holds differences from the layers below */
export type Layer = { id: string; format: "raw" | "qcow2"; path: string };

/** The layers in a folder, lowest first */
export function layersIn(dir: string, ids: readonly string[]): Layer[] {
  return ids.map((id, at) => {
    const format = at === 0 ? "raw" : "qcow2";
    return { id, format, path: join(dir, layerFile({ id, format })) };
  });
}

export function layerFile({ id, format }: Pick<Layer, "id" | "format">): string {
  return `${id}.${format}`;
}

/** Disk space of files: allocated bytes, and bytes that their removal would free. A layer with several hard links frees none */
export async function layerBytes(paths: readonly string[]): Promise<{ bytes: number; ownBytes: number }> {
  const sizes = { bytes: 0, ownBytes: 0 };
  for (const path of paths) {
    const file = await statIfThere(path);
    if (!file) continue;
    sizes.bytes += file.blocks * 512;
    if (file.nlink === 1) sizes.ownBytes += file.blocks * 512;
  }
  return sizes;
}

/** Hard-links layers into a folder; returns their ids. The link count is the reference count: the last removal frees the layer */
export async function linkLayers(layers: readonly Layer[], dir: string): Promise<string[]> {
  for (const layer of layers) {
    const path = join(dir, layerFile(layer));
    await link(layer.path, path);
    // Check after the link, where no VMM can change it: a compromised VMM may have put a symbolic link to any host file there.
    if (!(await lstat(path)).isFile())
      throw new ForkdError("VMM_FAILED", `Cannot use the disk layer ${layer.id}: it is not a regular file.`);
  }
  return layers.map(({ id }) => id);
}

/** NO_SPACE in place of the error of a tool that says that the disk is full */
export function diskFailure(error: unknown): unknown {
  const isFull = error instanceof ForkdError && /No space left on device|Disk quota exceeded/.test(error.message);
  return isFull ? new ForkdError("NO_SPACE", "Cannot write a disk layer: the host's disk is full.", { cause: error }) : error;
}
