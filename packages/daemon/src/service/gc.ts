// Garbage collection of downloads, snapshots, guest kernels and images.

import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { GcResult } from "../api/daemon.ts";
import { statIfThere } from "@forkd/runtime/util/stat-if-there";
import { folderAgeMs } from "@forkd/runtime/host/owner";
import { sweepStaging } from "@forkd/runtime/host/staging";
import { downloadsDir } from "@forkd/runtime/hub/blob-store";
import { sweepDownloads } from "@forkd/runtime/oci/blob-download";
import { PackCache } from "@forkd/runtime/pack/cache";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import type { Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";

/** minimum age of a guest kernel: another installation that shares the home may use it */
const IN_USE_MS = 24 * 3600 * 1000;

type Garbage = GcResult["removed"][number];

export async function collectGarbage(core: Core, lineage: Lineage, dryRun: boolean): Promise<GcResult> {
  const unneeded = await lineage.unneeded();
  const snapshots = await snapshotGarbage(unneeded);
  const flats: Garbage[] = (await core.runtime.flats.unused()).map(({ id, bytes }) => ({ kind: "flat-image", name: id, bytes }));
  const kernels = await unusedGuestKernels(core);
  const images = await unneededImages(core, unneeded);
  const cache = new PackCache(core.home);
  const packs = (await cache.trim(0, { dryRun })).map(({ digest, bytes }): Garbage => ({ kind: "pack", name: digest, bytes }));
  const downloads = await downloadGarbage(core, dryRun);
  if (!dryRun) {
    await lineage.collect();
    await core.runtime.flats.evict(0);
    for (const { name } of images) await core.runtime.images.remove(name, { inUse: async (id) => isImageNeeded(core, id) });
    await cache.sweep(new Set(await core.runtime.snapshots.ids()));
    for (const { name } of kernels) await rm(join(core.home.guestKernels, name), { recursive: true, force: true });
    await sweepStaging(core.home);
    await core.runtime.snapshots.sweep();
  }
  const removed = [...snapshots, ...flats, ...kernels, ...images, ...packs, ...downloads];
  return { removed, bytes: removed.reduce((sum, { bytes }) => sum + bytes, 0), dry_run: dryRun };
}

/** Partial downloads of interrupted image and pack pulls */
async function downloadGarbage({ home }: Core, dryRun: boolean): Promise<Garbage[]> {
  const found = [];
  for (const dir of [join(home.cache, "blobs"), downloadsDir(home)]) found.push(...(await sweepDownloads(dir, { dryRun })));
  return found.map(({ name, bytes }) => ({ kind: "download", name, bytes }));
}

/** Bytes of shared disk layers and delta files count for the last snapshot that links to them */
async function snapshotGarbage(snapshots: readonly Snapshot[]): Promise<Garbage[]> {
  const links = new Map<number, number>();
  const garbage: Garbage[] = [];
  for (const { manifest, layers, deltas } of snapshots) {
    let bytes = (manifest.memory.kind === "base" ? manifest.memory.bytes : 0) + manifest.deviceStateBytes;
    for (const path of [...deltas, ...layers.map((layer) => layer.path)]) {
      const file = await statIfThere(path);
      if (!file) continue;
      const others = (links.get(file.ino) ?? file.nlink) - 1;
      links.set(file.ino, others);
      if (others === 0) bytes += file.blocks * 512;
    }
    garbage.push({ kind: "snapshot", name: manifest.tag, bytes });
  }
  return garbage;
}

/** Guest kernels of earlier versions: each version builds its own, and only boots need it */
async function unusedGuestKernels({ home, runtime }: Core): Promise<Garbage[]> {
  const garbage: Garbage[] = [];
  for (const entry of await readdir(home.guestKernels, { withFileTypes: true })) {
    const isOld = /^[0-9a-f]{64}$/.test(entry.name) && entry.name !== runtime.guestKernel.id;
    if (!isOld || (await folderAgeMs(join(home.guestKernels, entry.name))) < IN_USE_MS) continue;
    garbage.push({ kind: "guest-kernel", name: entry.name, bytes: await folderBytes(join(home.guestKernels, entry.name)) });
  }
  return garbage;
}

/** Unnamed images, which came in packs, without a snapshot that needs them */
async function unneededImages({ runtime, tables }: Core, doomed: readonly Snapshot[]): Promise<Garbage[]> {
  // a boot in progress records the image as it was requested (name or id), so its image id is not known here
  if (tables.snapshots.where("status", "writing").length > 0) return [];
  const gone = new Set(doomed.map(({ manifest }) => manifest.id));
  const staying = (await runtime.snapshots.everything()).filter(({ manifest }) => !gone.has(manifest.id));
  const needed = new Set(staying.map(({ manifest }) => manifest.imageId));
  const nameless = (await runtime.images.list()).filter(({ id, names }) => names.length === 0 && !needed.has(id));
  return nameless.map(({ id, manifest }) => ({ kind: "image", name: id, bytes: manifest.rootfs.bytes }));
}

async function isImageNeeded({ runtime }: Core, id: string): Promise<boolean> {
  return (await runtime.snapshots.everything()).some(({ manifest }) => manifest.imageId === id);
}

async function folderBytes(dir: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(dir, { withFileTypes: true, recursive: true })) {
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name))).blocks * 512;
  }
  return bytes;
}
