// The manifest of a snapshot on disk. Until the other files are on disk, the manifest names the boot of the host in which they were
// written. A power cut may lose any of them, so a snapshot whose manifest names another boot is refused. The final manifest is
// written after all other files are on disk, so it is correct in whatever order the file system writes.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { snapshotManifest, type SnapshotManifest } from "./manifest.ts";

const FILE = "manifest.json";

const storedManifest = snapshotManifest.extend({
  /** absent: the snapshot is on disk */
  unsynced: z
    .strictObject({
      boot: z.string(),
      /** why a write failed. It is not retried, because Linux reports a failed write once and later reports success */
      error: z.string().optional(),
    })
    .optional(),
});

export type Unsynced = NonNullable<z.infer<typeof storedManifest>["unsynced"]>;
export type StoredManifest = { manifest: SnapshotManifest; unsynced: Unsynced | undefined };

export async function readManifest(dir: string): Promise<StoredManifest> {
  const { unsynced, ...manifest } = storedManifest.parse(JSON.parse(await readFile(join(dir, FILE), "utf8")));
  return { manifest, unsynced };
}

/** When the snapshot is on disk, its new manifest is too when this returns */
export async function writeManifest(dir: string, { manifest, unsynced }: StoredManifest): Promise<void> {
  const stored = storedManifest.parse({ ...manifest, unsynced });
  await writeFileAtomic(join(dir, FILE), `${JSON.stringify(stored, undefined, 2)}\n`, unsynced ? "quick" : "durable");
}
