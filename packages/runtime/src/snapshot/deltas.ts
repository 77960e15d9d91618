// Delta files of a branch. A source that is branched again stores only the pages that changed since its previous branch: the new
// snapshot has hard links to the earlier delta files, and its own file is applied after them. The link count is the reference
// count, so each snapshot can be removed by itself.

import { link, rm } from "node:fs/promises";
import { join } from "node:path";
import type { SnapshotManifest } from "./manifest.ts";

const PAGE = 4096;
/** A branch with more files stores all pages again: each file is opened and compared at the next branch */
const MAX_FILES = 16;
/** The files of a branch may have this many times the bytes of its pages; the rest are pages that later files replace */
const MAX_WEIGHT = 3;

/** The delta files in a snapshot's folder, oldest first; none for a base */
export function deltasIn(dir: string, { memory }: Pick<SnapshotManifest, "memory">): string[] {
  if (memory.kind === "base") return [];
  const earlier = memory.earlier ?? [];
  return [...earlier.map((_, at) => join(dir, earlierFile(at))), join(dir, "memory.delta")];
}

/** Sizes of the delta files that a new branch of the source shares with this one; undefined: it must store all pages */
export function sharedSizes(previous: SnapshotManifest, source: SnapshotManifest): number[] | undefined {
  const { memory } = previous;
  // the pages of a delta belong to one base
  if (memory.kind !== "delta" || memory.base !== source.id) return undefined;
  const sizes = [...(memory.earlier ?? []), memory.bytes];
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  return sizes.length < MAX_FILES && bytes <= MAX_WEIGHT * (memory.pages + 1) * PAGE ? sizes : undefined;
}

/** Hard-links earlier delta files into a folder; undefined, and no file, if that fails: their snapshot may be removed meanwhile */
export async function linkEarlier(deltas: readonly string[], dir: string): Promise<string[] | undefined> {
  const links = deltas.map((_, at) => join(dir, earlierFile(at)));
  try {
    for (const [at, path] of deltas.entries()) await link(path, links[at] ?? "");
    return links;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    for (const path of links) await rm(path, { force: true });
    return undefined;
  }
}

function earlierFile(at: number): string {
  return `memory-${at + 1}.delta`;
}
