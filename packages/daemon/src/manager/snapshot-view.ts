// A snapshot as the API shows it: what is on disk, and what the daemon remembers of it.

import { stat } from "node:fs/promises";
import type { SnapshotDetails, SnapshotInfo } from "../api/snapshot.ts";
import { layerBytes } from "../disk/layer.ts";
import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { SnapshotRow } from "../store/tables.ts";
import { checkCompatible } from "../vmm/qemu/compatible.ts";
import type { Core } from "./core.ts";
import { policyInfo } from "./network-policy.ts";

export type ViewContext = {
  core: Core;
  /** image id → a name of it */
  imageNames: Map<string, string>;
  /** snapshot id → its tag */
  tags: Map<string, string>;
};

/** One that is complete */
export function snapshotInfo({ core, imageNames, tags }: ViewContext, snapshot: Snapshot, row: SnapshotRow | undefined): SnapshotInfo {
  const { manifest } = snapshot;
  const isDelta = manifest.memory.kind === "delta";
  const baseId = manifest.memory.kind === "delta" ? manifest.memory.base : undefined;
  const refusal = incompatibility(core, snapshot);
  return {
    tag: manifest.tag,
    id: manifest.id,
    dir: snapshot.dir,
    status: "ready",
    bootable: refusal === null,
    created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000),
    image: imageNames.get(manifest.imageId) ?? manifest.imageId,
    memory_mib: manifest.shape.memoryMiB,
    vcpus: manifest.shape.vcpus,
    disk_mib: manifest.disk?.sizeMiB ?? null,
    kernels: manifest.kernels.map(({ language }) => language),
    depth: manifest.depth,
    parent_tag: baseId === undefined ? null : (tags.get(baseId) ?? null),
    branched_from: manifest.branchedFrom,
    pause_ms: row?.pause_ms ?? null,
    delta_bytes: isDelta ? manifest.memory.bytes : null,
    diff_ms: row?.pause_ms ?? null,
    diff_physical_bytes: isDelta ? manifest.memory.bytes : null,
    diff_logical_bytes: manifest.memory.kind === "delta" ? manifest.memory.pages * 4096 : null,
    ephemeral: row?.ephemeral === 1,
    pool: row?.pool ?? 0,
    network: policyInfo(manifest.network),
    metadata: row?.metadata ?? {},
    error: null,
    warning: refusal,
    warnings: row?.warnings ?? [],
  };
}

/** One that is being written, or failed */
export function unfinishedInfo(row: SnapshotRow): SnapshotInfo {
  return {
    tag: row.tag,
    id: row.id,
    dir: "",
    status: row.status,
    bootable: false,
    created_at_unix: row.created_at,
    image: row.image,
    memory_mib: row.memory_mib,
    vcpus: row.vcpus,
    disk_mib: row.disk_mib,
    kernels: [],
    depth: 0,
    parent_tag: row.parent_tag,
    branched_from: row.branched_from,
    pause_ms: row.pause_ms,
    delta_bytes: row.delta_bytes,
    diff_ms: row.pause_ms,
    diff_physical_bytes: row.delta_bytes,
    diff_logical_bytes: row.delta_bytes,
    ephemeral: row.ephemeral === 1,
    pool: 0,
    network: null,
    metadata: row.metadata,
    error: row.error,
    warning: null,
    warnings: row.warnings,
  };
}

export async function snapshotDetails(
  snapshot: Snapshot,
  lineage: { ancestors: string[]; dependents: string[]; sandboxes: string[]; parentTag: string | null },
): Promise<SnapshotDetails> {
  const { manifest, dir, memory, layers } = snapshot;
  const disk = await layerBytes(layers.map(({ path }) => path));
  return {
    tag: manifest.tag,
    id: manifest.id,
    dir,
    created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000),
    memory_logical_bytes: manifest.shape.memoryMiB * 1024 * 1024,
    memory_physical_bytes: (await stat(memory)).blocks * 512,
    vmstate_bytes: manifest.deviceStateBytes,
    disk_mib: manifest.disk?.sizeMiB ?? null,
    disk_layers: layers.length,
    disk_physical_bytes: disk.bytes,
    disk_own_bytes: disk.ownBytes,
    parent_tag: lineage.parentTag,
    parent_content_hash: null,
    chain_depth: manifest.depth,
    ancestors: lineage.ancestors,
    dependents: lineage.dependents,
    sandboxes: lineage.sandboxes,
  };
}

function incompatibility({ runtime }: Core, { manifest }: Snapshot): string | null {
  try {
    checkCompatible(manifest.tag, manifest.shape, { qemuVersion: runtime.qemuVersion, accelerator: runtime.accelerator.accelerator });
    return null;
  } catch (error) {
    if (error instanceof ForkdError) return error.message;
    throw error;
  }
}
