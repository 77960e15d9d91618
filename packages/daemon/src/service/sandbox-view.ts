// Conversion of sandboxes to API objects and rows.

import type { CreateSandboxes, ForkSandbox, SandboxInfo, Share } from "../api/sandbox.ts";
import { describeRate } from "@forkd/runtime/agent/clock";
import type { HostLimits } from "@forkd/runtime/host/control-groups";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { SandboxRow } from "../store/tables.ts";
import { limitFields, type GivenStart } from "./limit-fields.ts";
import { policyInfo } from "./network-policy.ts";
import { shownName } from "../store/project-names.ts";
import type { Entry } from "./registry.ts";

const UNMEASURED = { clock_drift_ppm: null, clock_measured: null, ran_before_ms: null, not_reseeded: [] };

export function sandboxInfo({
  row,
  lastActive,
  sandbox,
}: Pick<Entry, "row" | "lastActive"> & Partial<Pick<Entry, "sandbox">>): SandboxInfo {
  const live = row.state === "running" || row.state === "paused";
  const rate = sandbox?.clock.rate;
  return {
    id: row.id,
    project: row.project,
    name: row.name,
    snapshot_tag: shownName(row.snapshot_tag, row.project),
    snapshot_id: row.snapshot_id,
    state: row.state,
    reason: row.reason,
    isolation: row.isolation,
    confinement: row.confinement,
    started_by: (live && sandbox?.vm.startedBy) || null,
    memory_mib: row.memory_mib,
    vcpus: row.vcpus,
    disk_mib: row.disk_mib,
    kernels: row.kernels,
    metadata: row.metadata,
    created_at_unix: row.created_at,
    created_at_unix_ms: row.created_at_ms,
    last_active_unix: Math.max(row.last_active, Math.floor(lastActive / 1000)),
    expires_at_unix: row.expires_at,
    idle_timeout_secs: row.idle_timeout_secs,
    suspended_ttl_secs: row.suspended_ttl_secs,
    on_timeout: row.on_timeout,
    auto_resume: row.auto_resume === 1,
    created_by: row.created_by,
    pid: live ? row.pid : null,
    fork_ms: row.fork_ms,
    // rows of earlier versions lack newer measurements
    certificate: { ...UNMEASURED, ...(sandbox?.certificate ?? row.certificate) },
    shares: row.shares,
    branch_count: row.branch_count,
    has_branched: row.branch_count > 0,
    ...limitFields(row),
    network: policyInfo(row.network),
    netns: null,
    guest_addr: "",
    last_branch_memory_path: row.last_branch_path,
    warnings: rate && sandbox.clock.isWrong ? [...row.warnings, `Its time is wrong: ${describeRate(rate)}.`] : row.warnings,
  };
}

/** Facts that are common to the rows of new sandboxes */
export type RowFacts = {
  request: Partial<Pick<CreateSandboxes, "name">> &
    Pick<ForkSandbox, "metadata" | "shares" | "ttl_secs" | "idle_timeout_secs" | "suspended_ttl_secs" | "on_timeout" | "auto_resume"> &
    GivenStart;
  limits: HostLimits;
  shares: Share[];
  confinement: SandboxRow["confinement"];
  /** as it is stored */
  snapshotTag: string;
  project: string;
  principal: string;
  bootId: string;
  warnings: string[];
};

export function sandboxRow(sandbox: Sandbox, facts: RowFacts): SandboxRow {
  const { request, confinement, snapshotTag, project, principal, bootId, warnings } = facts;
  const { manifest } = sandbox.snapshot;
  const nowMs = Date.now();
  const now = Math.floor(nowMs / 1000);
  return {
    id: sandbox.id,
    project,
    name: request.name ?? null,
    snapshot_id: manifest.id,
    snapshot_tag: snapshotTag,
    state: "running",
    reason: null,
    pid: sandbox.vm.pid,
    start_time: sandbox.vm.startTime,
    boot_id: bootId,
    memory_mib: manifest.shape.memoryMiB,
    vcpus: manifest.shape.vcpus,
    disk_mib: manifest.disk?.sizeMiB ?? null,
    isolation: sandbox.isolation,
    confinement,
    kernels: sandbox.kernels,
    env: sandbox.env,
    shares: [...sandbox.shares],
    certificate: sandbox.certificate,
    metadata: request.metadata ?? {},
    fork_ms: sandbox.forkMs,
    created_at: now,
    created_at_ms: nowMs,
    last_active: now,
    expires_at: request.ttl_secs ? now + request.ttl_secs : null,
    ttl_secs: request.ttl_secs ?? null,
    idle_timeout_secs: request.idle_timeout_secs ?? null,
    suspended_ttl_secs: request.suspended_ttl_secs ?? null,
    on_timeout: request.on_timeout ?? "end",
    auto_resume: request.auto_resume ? 1 : 0,
    keep_memory: 1,
    branch_count: 0,
    last_branch_path: null,
    ...limitFields(request),
    network: sandbox.network.policy,
    egress_bytes: sandbox.network.leased,
    created_by: principal,
    warnings,
  };
}
