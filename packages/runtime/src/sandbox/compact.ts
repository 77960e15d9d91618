// Compaction: a copy of a snapshot without a chain, with one memory base and one disk layer.

import { copyFile, mkdir, stat } from "node:fs/promises";
import { constants } from "node:fs";
import { join } from "node:path";
import type { NetworkPolicy } from "../egress/policy.ts";
import type { Home } from "../home.ts";
import { withStaging } from "../host/staging.ts";
import type { FlatCache } from "../snapshot/flat-images.ts";
import type { WardenSource } from "../warden/source.ts";
import type { SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Engine } from "../vmm/driver.ts";

export type CompactContext = {
  home: Home;
  warden: WardenSource;
  snapshots: SnapshotStore;
  flats: FlatCache;
  engine: Pick<Engine, "flatten">;
};

/** `network`: policy of its forks; default: that of the snapshot */
export type CompactOptions = { tag: string; id?: string | undefined; network?: NetworkPolicy | undefined };

export async function compactSnapshot(context: CompactContext, from: Snapshot, opts: CompactOptions): Promise<Snapshot> {
  await context.snapshots.reserve(opts.tag);
  try {
    return await withStaging(context.home, async (staging) => {
      const dir = join(staging, "snapshot");
      await mkdir(dir, { mode: 0o700 });
      const memory = join(dir, "memory.ram");
      const flat = await context.flats.acquire(from);
      try {
        // without deltas this is a copy that omits zero pages
        await (await context.warden()).flatten({ base: flat.path, deltas: [], out: memory });
      } finally {
        flat.release();
      }
      await copyFile(from.deviceState, join(dir, "device.state"), constants.COPYFILE_FICLONE);
      const { disk } = from.manifest;
      const layers = disk ? [(await context.engine.flatten(from.layers, disk.sizeMiB, dir)).id] : [];
      const manifest: SnapshotManifest = {
        ...from.manifest,
        id: opts.id ?? newId("sn"),
        tag: opts.tag,
        name: undefined,
        network: opts.network ?? from.manifest.network,
        createdAt: new Date().toISOString(),
        memory: { kind: "base", bytes: (await stat(memory)).blocks * 512 },
        disk: disk && { ...disk, layers },
        depth: 0,
      };
      return context.snapshots.publish(dir, manifest);
    });
  } finally {
    await context.snapshots.release(opts.tag);
  }
}
