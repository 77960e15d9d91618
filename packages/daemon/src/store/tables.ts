// What the daemon remembers of sandboxes, snapshots and workspaces.

import type { Metadata } from "../api/common.ts";
import type { SandboxInfo, SandboxState, Share } from "../api/sandbox.ts";
import type { SnapshotStatus } from "../api/snapshot.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { Db } from "./db.ts";
import { Table } from "./rows.ts";

/** null: none */
type LimitColumns = Pick<SandboxInfo, "memory_limit_mib" | "cpu_limit" | "cpu_weight" | "pids_limit" | "io_limit_mbps">;

export type SandboxRow = LimitColumns & {
  id: string;
  name: string | null;
  snapshot_id: string;
  snapshot_tag: string;
  state: SandboxState;
  reason: string | null;
  pid: number;
  start_time: string;
  /** boot of the host it runs in */
  boot_id: string;
  memory_mib: number;
  vcpus: number;
  disk_mib: number | null;
  isolation: SandboxInfo["isolation"];
  confinement: SandboxInfo["confinement"];
  kernels: string[];
  env: Record<string, string>;
  shares: Share[];
  certificate: SandboxInfo["certificate"];
  metadata: Metadata;
  fork_ms: number;
  created_at: number;
  last_active: number;
  expires_at: number | null;
  /** what it was last given; it has as long again when it wakes up */
  ttl_secs: number | null;
  idle_timeout_secs: number | null;
  on_timeout: SandboxInfo["on_timeout"];
  /** 1: it wakes up when it is used */
  auto_resume: number;
  branch_count: number;
  last_branch_path: string | null;
  network: NetworkPolicy;
  /** what left it, or may have by now, where that is limited */
  egress_bytes: number;
  created_by: string;
  warnings: string[];
};

export type SnapshotRow = {
  id: string;
  tag: string;
  status: SnapshotStatus;
  error: string | null;
  /** 1: goes when nothing needs it */
  ephemeral: number;
  /** 1: a client knows of it although it may not be complete */
  told: number;
  image: string | null;
  memory_mib: number;
  vcpus: number;
  disk_mib: number | null;
  parent_tag: string | null;
  branched_from: string | null;
  pause_ms: number | null;
  delta_bytes: number | null;
  pool: number;
  /** of the sandbox from which it was branched */
  shares: Share[];
  metadata: Metadata;
  warnings: string[];
  created_by: string;
  created_at: number;
};

export type WorkspaceRow = LimitColumns & {
  id: string;
  name: string;
  source_snapshot_tag: string;
  state_tag: string | null;
  /** the snapshot of its saved state */
  state_id: string | null;
  sandbox_id: string | null;
  created_at: number;
  last_active: number;
  warnings: string[];
};

export type Tables = { sandboxes: Table<SandboxRow>; snapshots: Table<SnapshotRow>; workspaces: Table<WorkspaceRow> };

export function tablesOf(db: Db): Tables {
  return {
    sandboxes: new Table(db, "sandboxes", {
      key: "id",
      json: ["kernels", "env", "shares", "certificate", "metadata", "network", "warnings"],
    }),
    snapshots: new Table(db, "snapshots", { key: "id", json: ["shares", "metadata", "warnings"] }),
    workspaces: new Table(db, "workspaces", { key: "id", json: ["warnings"] }),
  };
}
