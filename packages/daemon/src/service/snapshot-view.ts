// Conversion of snapshots (manifest and row) to API objects.

import type { SnapshotDetails, SnapshotInfo } from "../api/snapshot.ts";
import { layerBytes } from "@forkd/runtime/disk/layer";
import { ForkdError } from "@forkd/runtime/errors";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { projectOf, shownName } from "../store/project-names.ts";
import type { SnapshotRow } from "../store/tables.ts";
import { checkCompatible } from "@forkd/runtime/vmm/compatible";
import type { Core } from "./core.ts";
import { policyInfo } from "./network-policy.ts";
import { labelsIn } from "./snapshot-labels.ts";

const MIB = 1024 * 1024;

export type ViewContext = {
  core: Core;
  /** image id → its names, as they are stored */
  imageNames: Map<string, string[]>;
  /** snapshot id → its tag, as it is stored */
  tags: Map<string, string>;
};

/** View of a complete snapshot */
export function snapshotInfo({ core, imageNames, tags }: ViewContext, snapshot: Snapshot, row: SnapshotRow | undefined): SnapshotInfo {
  const { manifest } = snapshot;
  const isDelta = manifest.memory.kind === "delta";
  const baseId = manifest.memory.kind === "delta" ? manifest.memory.base : undefined;
  const refusal = incompatibility(core, snapshot);
  const project = projectOf(manifest.tag);
  const parent = baseId === undefined ? undefined : tags.get(baseId);
  const image = imageNames.get(manifest.imageId)?.find((name) => projectOf(name) === project);
  return {
    tag: shownName(manifest.tag, project),
    project,
    visibility: row?.visibility ?? "private",
    expires_at_unix: row?.expires_at ?? null,
    id: manifest.id,
    dir: snapshot.dir,
    status: "ready",
    bootable: refusal === null,
    created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000),
    image: image === undefined ? manifest.imageId : shownName(image, project),
    memory_mib: manifest.shape.memoryMiB,
    vcpus: manifest.shape.vcpus,
    disk_mib: manifest.disk?.sizeMiB ?? null,
    kernels: manifest.kernels.map(({ language }) => language),
    depth: manifest.depth,
    // that of another project is not for this one
    parent_tag: parent !== undefined && projectOf(parent) === project ? shownName(parent, project) : null,
    branched_from: manifest.branchedFrom,
    ...pauseFields(row?.pause_ms ?? null),
    delta_bytes: isDelta ? manifest.memory.bytes : null,
    diff_physical_bytes: isDelta ? manifest.memory.bytes : null,
    diff_logical_bytes: isDelta ? manifest.shape.memoryMiB * MIB : null,
    ephemeral: row?.ephemeral === 1,
    pool: row?.pool ?? 0,
    network: policyInfo(manifest.network),
    ...labelsIn(row),
    error: null,
    warning: refusal,
    warnings: row?.warnings ?? [],
  };
}

/** View of a snapshot that is being written or has failed */
export function unfinishedInfo(row: SnapshotRow): SnapshotInfo {
  return {
    tag: shownName(row.tag, row.project),
    project: row.project,
    visibility: row.visibility,
    expires_at_unix: row.expires_at,
    id: row.id,
    dir: "",
    status: row.status,
    bootable: false,
    created_at_unix: row.created_at,
    image: row.image && shownName(row.image, row.project),
    memory_mib: row.memory_mib,
    vcpus: row.vcpus,
    disk_mib: row.disk_mib,
    kernels: [],
    depth: 0,
    parent_tag: row.parent_tag && shownName(row.parent_tag, row.project),
    branched_from: row.branched_from,
    ...pauseFields(row.pause_ms),
    delta_bytes: row.delta_bytes,
    diff_physical_bytes: row.delta_bytes,
    diff_logical_bytes: row.branched_from === null ? null : row.memory_mib * MIB,
    ephemeral: row.ephemeral === 1,
    pool: 0,
    network: null,
    ...labelsIn(row),
    error: row.error,
    warning: null,
    warnings: row.warnings,
  };
}

export async function snapshotDetails(
  snapshot: Snapshot,
  lineage: { ancestors: string[]; dependents: string[]; sandboxes: string[]; parentTag: string | null },
): Promise<SnapshotDetails> {
  const { manifest, dir, memory, deltas, layers } = snapshot;
  const disk = await layerBytes(layers.map(({ path }) => path));
  return {
    tag: shownName(manifest.tag, projectOf(manifest.tag)),
    id: manifest.id,
    dir,
    created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000),
    memory_logical_bytes: manifest.shape.memoryMiB * MIB,
    memory_physical_bytes: (await layerBytes(deltas.length === 0 ? [memory] : deltas)).bytes,
    vmstate_bytes: manifest.deviceStateBytes,
    isolation: manifest.shape.accelerator === "kvm" ? "kvm" : "emulated",
    cpu: manifest.shape.cpu,
    cpu_vendor: manifest.shape.vendor ?? null,
    hugepages: manifest.shape.hugepages === true,
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

/** Clients of deeplethe/forkd parse whole milliseconds and fail on a fraction */
function pauseFields(pauseMs: number | null): Pick<SnapshotInfo, "pause_ms" | "pause_us" | "diff_ms"> {
  const whole = pauseMs === null ? null : Math.ceil(pauseMs);
  return { pause_ms: whole, pause_us: pauseMs === null ? null : Math.round(pauseMs * 1000), diff_ms: whole };
}

function incompatibility({ runtime }: Core, { manifest }: Snapshot): string | null {
  try {
    checkCompatible(shownName(manifest.tag, projectOf(manifest.tag)), manifest.shape, runtime.engine);
    return null;
  } catch (error) {
    if (error instanceof ForkdError) return error.message;
    throw error;
  }
}
