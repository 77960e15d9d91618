// Snapshots as table rows.

import { formatAge, formatMs, formatPairs } from "./format.ts";
import { formatBytes, printJson, printLine, printNote, printTable, printWarnings } from "./output.ts";
import { isInternal, OWN_KEYS } from "../recipe/layer.ts";

import type { SnapshotInfo } from "forkd";
import type { Cli } from "../cli.ts";

/** `known`: all snapshots, also those that are not listed. With `all`, adds forkd's notes */
export function printSnapshots(listed: readonly SnapshotInfo[], known: readonly SnapshotInfo[], opts: { all: boolean }): void {
  const metadataOf = ({ metadata }: SnapshotInfo): [string, string][] =>
    Object.entries(metadata).filter(([key]) => opts.all || !key.startsWith(OWN_KEYS));
  printTable(listed, [
    { title: "TAG", value: (snapshot) => snapshot.tag },
    { title: "STATUS", value: (snapshot) => (snapshot.status === "ready" && !snapshot.bootable ? "not bootable" : snapshot.status) },
    { title: "IMAGE", value: (snapshot) => snapshot.image ?? "-", wraps: true },
    { title: "MEMORY", value: (snapshot) => `${snapshot.memory_mib} MiB`, align: "right" },
    { title: "KERNELS", value: (snapshot) => snapshot.kernels.join(", ") || "-", wraps: true, optional: true },
    { title: "FROM", value: (snapshot) => originOf(snapshot, known, opts.all), wraps: true, optional: true },
    { title: "POOL", value: (snapshot) => (snapshot.pool > 0 ? String(snapshot.pool) : "-"), align: "right", optional: true },
    { title: "AGE", value: (snapshot) => formatAge(snapshot.created_at_unix), align: "right" },
    { title: "DESCRIPTION", value: (snapshot) => snapshot.description ?? "-", wraps: true, optional: true },
    { title: "METADATA", value: (snapshot) => formatPairs(Object.fromEntries(metadataOf(snapshot))), wraps: true, optional: true },
  ]);
}

/** Parent of a branch: the sandbox with `all`, else the nearest ancestor that is not internal */
function originOf(snapshot: SnapshotInfo, known: readonly SnapshotInfo[], all: boolean): string {
  if (all) return snapshot.branched_from ?? snapshot.parent_tag ?? "-";
  let tag = snapshot.parent_tag;
  for (let steps = 0; steps < known.length; steps++) {
    const above = known.find((each) => each.tag === tag);
    if (!above || !isInternal(above)) break;
    tag = above.parent_tag;
  }
  return tag ?? "-";
}

/** A new snapshot */
export function printSnapshot(cli: Cli, snapshot: SnapshotInfo, opts: { quiet?: boolean | undefined }): void {
  if (cli.json) {
    printJson(snapshot);
    return;
  }
  printNotes(snapshot);
  const disk = snapshot.disk_mib === null ? "" : `, ${snapshot.disk_mib} MiB of disk`;
  const kernels = snapshot.kernels.length > 0 ? `, warm: ${snapshot.kernels.join(", ")}` : "";
  printLine(opts.quiet ? snapshot.tag : `Snapshot ${snapshot.tag}: ${snapshot.image ?? "-"}, ${snapshot.memory_mib} MiB${disk}${kernels}.`);
}

/** A new branch */
export function printBranch(cli: Cli, source: string, snapshot: SnapshotInfo, opts: { quiet?: boolean | undefined }): void {
  if (cli.json) {
    printJson(snapshot);
    return;
  }
  printNotes(snapshot);
  const state = snapshot.status === "ready" ? "" : ` It is being written: 'forkd snapshot ls' says when it is ready.`;
  const stored = snapshot.delta_bytes === null ? "" : `, stored ${formatBytes(snapshot.delta_bytes)}`;
  printLine(
    opts.quiet ? snapshot.tag : `Snapshot ${snapshot.tag} of ${source}: paused for ${formatMs(pauseMsOf(snapshot))}${stored}.${state}`,
  );
}

/** With fraction */
export function pauseMsOf({ pause_us: pauseUs }: SnapshotInfo): number | null {
  return pauseUs === null ? null : pauseUs / 1000;
}

function printNotes(snapshot: SnapshotInfo): void {
  printWarnings([snapshot]);
  if (snapshot.warning) printNote(`Note: ${snapshot.warning}`);
}
