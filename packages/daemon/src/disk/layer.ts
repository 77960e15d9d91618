// A disk is a stack of files. Only the uppermost one is written; the others never change, so any number of disks can share them.

import type { Stats } from "node:fs";
import { link, lstat, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";

export const LAYER_ID = /^dk-[a-z2-7]{16}$/;

/** "raw" is the lowest one, the whole disk as a sparse file; "qcow2" holds what differs from the layers below */
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

/** What files take of the host's disk, and how much of that would be free without them: a layer may be in several folders */
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

/** A layer may go while it is looked at, and be missing in a damaged snapshot */
export async function statIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Gives a folder the same files; returns their ids. The file system counts who has a layer and removes it with the last one */
export async function linkLayers(layers: readonly Layer[], dir: string): Promise<string[]> {
  for (const layer of layers) {
    const path = join(dir, layerFile(layer));
    await link(layer.path, path);
    // looked at where no VMM can change it: one that was broken into may have put a link there, to any file of the host
    if (!(await lstat(path)).isFile()) throw new ForkdError("VMM_FAILED", `Cannot use the disk layer ${layer.id}: it is no ordinary file.`);
  }
  return layers.map(({ id }) => id);
}
