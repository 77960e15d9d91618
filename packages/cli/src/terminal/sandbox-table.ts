// Sandboxes as table rows.

import { formatAge, formatDuration, formatMs, formatPairs } from "./format.ts";
import { printTable } from "./output.ts";

import type { Column } from "./output.ts";
import type { SandboxInfo } from "forkd";

const STATE_COLOURS: Record<string, "green" | "yellow" | "red"> = {
  running: "green",
  paused: "yellow",
  suspended: "yellow",
  ended: "red",
  lost: "red",
};

const IDENTITY: Column<SandboxInfo>[] = [
  { title: "ID", value: (sandbox) => sandbox.id },
  { title: "NAME", value: (sandbox) => sandbox.name ?? "-", wraps: true },
  { title: "SNAPSHOT", value: (sandbox) => sandbox.snapshot_tag, wraps: true },
  { title: "STATE", value: (sandbox) => sandbox.state, style: (text) => STATE_COLOURS[text] },
];

/** Columns of `ls` */
export function printSandboxes(sandboxes: readonly SandboxInfo[]): void {
  printTable(sandboxes, [
    ...IDENTITY,
    { title: "AGE", value: (sandbox) => formatAge(sandbox.created_at_unix), align: "right" },
    { title: "ENDS IN", value: endsIn, align: "right" },
    { title: "METADATA", value: (sandbox) => formatPairs(sandbox.metadata), wraps: true, optional: true },
  ]);
}

/** Columns of `fork` */
export function printForks(sandboxes: readonly SandboxInfo[]): void {
  printTable(sandboxes, [
    ...IDENTITY,
    { title: "FORKED IN", value: (sandbox) => formatMs(sandbox.fork_ms), align: "right" },
    { title: "ISOLATION", value: (sandbox) => sandbox.isolation },
  ]);
}

/** The earliest known end */
function endsIn(sandbox: SandboxInfo): string {
  if (sandbox.state !== "running" && sandbox.state !== "paused") return "-";
  const now = Date.now() / 1000;
  const limits = [
    ...(sandbox.expires_at_unix === null ? [] : [sandbox.expires_at_unix - now]),
    ...(sandbox.idle_timeout_secs === null ? [] : [sandbox.last_active_unix + sandbox.idle_timeout_secs - now]),
  ];
  return limits.length === 0 ? "never" : formatDuration(Math.min(...limits));
}
