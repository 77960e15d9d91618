// Removes what nothing refers to.

import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { GcResult } from "../api/daemon.ts";
import { statIfThere } from "../disk/layer.ts";
import { folderAgeMs } from "../host/owner.ts";
import { sweepStaging } from "../host/staging.ts";
import { downloadsDir } from "../hub/blob-store.ts";
import { sweepDownloads } from "../image/blob-download.ts";
import { PackCache } from "../pack/cache.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";

/** a guest kernel may be in use by another installation that shares the home */
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

/** Parts of images and packs whose pulls broke off */
async function downloadGarbage({ home }: Core, dryRun: boolean): Promise<Garbage[]> {
  const found = [];
  for (const dir of [join(home.cache, "blobs"), downloadsDir(home)]) found.push(...(await sweepDownloads(dir, { dryRun })));
  return found.map(({ name, bytes }) => ({ kind: "download", name, bytes }));
}

/** A layer of a disk is freed with the last of the snapshots that have it */
async function snapshotGarbage(snapshots: readonly Snapshot[]): Promise<Garbage[]> {
  const links = new Map<number, number>();
  const garbage: Garbage[] = [];
  for (const { manifest, layers } of snapshots) {
    let bytes = manifest.memory.bytes + manifest.deviceStateBytes;
    for (const { path } of layers) {
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

/** Made by earlier versions: a guest kernel is only needed to boot, and each version makes its own */
async function unusedGuestKernels({ home, runtime }: Core): Promise<Garbage[]> {
  const garbage: Garbage[] = [];
  for (const entry of await readdir(home.guestKernels, { withFileTypes: true })) {
    const isOld = /^[0-9a-f]{64}$/.test(entry.name) && entry.name !== runtime.guestKernel.id;
    if (!isOld || (await folderAgeMs(join(home.guestKernels, entry.name))) < IN_USE_MS) continue;
    garbage.push({ kind: "guest-kernel", name: entry.name, bytes: await folderBytes(join(home.guestKernels, entry.name)) });
  }
  return garbage;
}

/** Came in packs, without a name: they are there for the sake of snapshots only */
async function unneededImages({ runtime, tables }: Core, doomed: readonly Snapshot[]): Promise<Garbage[]> {
  // one that is being booted is known by whatever it was asked for with
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
