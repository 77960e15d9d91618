// Row types and tables of sandboxes, snapshots and workspaces.

import type { Metadata } from "../api/common.ts";
import type { SandboxInfo, SandboxState, Share } from "../api/sandbox.ts";
import type { SnapshotStatus } from "../api/snapshot.ts";
import type { NetworkPolicy } from "@forkd/runtime/egress/policy";
import type { Db } from "./db.ts";
import { Table } from "./rows.ts";

/** null: no limit */
type LimitColumns = Pick<SandboxInfo, "memory_limit_mib" | "cpu_limit" | "cpu_weight" | "pids_limit" | "io_limit_mbps">;

export type SandboxRow = LimitColumns & {
  id: string;
  project: string;
  name: string | null;
  snapshot_id: string;
  /** as it is stored, with its project */
  snapshot_tag: string;
  state: SandboxState;
  reason: string | null;
  pid: number;
  start_time: string;
  /** boot id of the host when the VM started */
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
  created_at_ms: number;
  last_active: number;
  expires_at: number | null;
  /** lifetime as last set; it starts anew on resume */
  ttl_secs: number | null;
  idle_timeout_secs: number | null;
  /** how long it may stay suspended before it is removed */
  suspended_ttl_secs: number | null;
  on_timeout: SandboxInfo["on_timeout"];
  /** 1: resume on use */
  auto_resume: number;
  /** 0: a suspension on timeout ends all programs first */
  keep_memory: number;
  branch_count: number;
  last_branch_path: string | null;
  network: NetworkPolicy;
  /** egress, journaled ahead in steps: after a crash the sandbox still cannot exceed its limit */
  egress_bytes: number;
  created_by: string;
  warnings: string[];
};

export type SnapshotRow = {
  id: string;
  project: string;
  /** as it is stored, with its project */
  tag: string;
  visibility: "private" | "public";
  /** when it is removed, unless something needs it; null: never */
  expires_at: number | null;
  /** its own disk space, known when it is ready; null in rows of earlier versions until it is measured */
  bytes: number | null;
  status: SnapshotStatus;
  error: string | null;
  /** 1: collected when nothing needs it */
  ephemeral: number;
  /** 1: a client has got the tag although the snapshot may be incomplete */
  announced: number;
  image: string | null;
  memory_mib: number;
  vcpus: number;
  disk_mib: number | null;
  parent_tag: string | null;
  branched_from: string | null;
  pause_ms: number | null;
  delta_bytes: number | null;
  pool: number;
  /** shares of the sandbox from which it was branched */
  shares: Share[];
  metadata: Metadata;
  description: string | null;
  warnings: string[];
  created_by: string;
  created_at: number;
};

export type WorkspaceRow = LimitColumns & {
  id: string;
  project: string;
  name: string;
  /** tags as they are stored, with their projects */
  source_snapshot_tag: string;
  state_tag: string | null;
  /** snapshot id of the saved state */
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
