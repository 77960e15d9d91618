// How snapshots look.

import { formatAge, formatMs, formatPairs } from "./format.ts";
import { formatBytes, printJson, printLine, printNote, printTable, printWarnings } from "./output.ts";

import type { SnapshotInfo } from "forkd";
import type { Cli } from "./cli.ts";

export function printSnapshots(snapshots: readonly SnapshotInfo[]): void {
  printTable(snapshots, [
    { title: "TAG", value: (snapshot) => snapshot.tag },
    { title: "STATUS", value: (snapshot) => (snapshot.status === "ready" && !snapshot.bootable ? "not bootable" : snapshot.status) },
    { title: "IMAGE", value: (snapshot) => snapshot.image ?? "-" },
    { title: "MEMORY", value: (snapshot) => `${snapshot.memory_mib} MiB`, align: "right" },
    { title: "KERNELS", value: (snapshot) => snapshot.kernels.join(", ") || "-" },
    { title: "FROM", value: (snapshot) => snapshot.branched_from ?? snapshot.parent_tag ?? "-" },
    { title: "POOL", value: (snapshot) => String(snapshot.pool), align: "right" },
    { title: "AGE", value: (snapshot) => formatAge(snapshot.created_at_unix), align: "right" },
    { title: "METADATA", value: (snapshot) => formatPairs(snapshot.metadata) },
  ]);
}

/** A snapshot that was just made */
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

/** A snapshot that was just branched off */
export function printBranch(cli: Cli, source: string, snapshot: SnapshotInfo, opts: { quiet?: boolean | undefined }): void {
  if (cli.json) {
    printJson(snapshot);
    return;
  }
  printNotes(snapshot);
  const state = snapshot.status === "ready" ? "" : ` It is being written: 'forkd snapshot ls' says when it is ready.`;
  const stored = snapshot.delta_bytes === null ? "" : `, stored ${formatBytes(snapshot.delta_bytes)}`;
  printLine(
    opts.quiet ? snapshot.tag : `Snapshot ${snapshot.tag} of ${source}: paused for ${formatMs(snapshot.pause_ms)}${stored}.${state}`,
  );
}

function printNotes(snapshot: SnapshotInfo): void {
  printWarnings([snapshot]);
  if (snapshot.warning) printNote(`Note: ${snapshot.warning}`);
}
