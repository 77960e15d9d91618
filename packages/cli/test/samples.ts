// Complete answers of a daemon.

import { sampleOf } from "../../../tests/helpers/sample.ts";
import type {
  ImageInfo,
  Preview,
  NetworkInfo,
  SandboxInfo,
  SnapshotDetails,
  SnapshotInfo,
  Status,
  TokenInfo,
  WorkspaceInfo,
  ProcessExit,
  ProcessInfo,
} from "forkd";

export function sandbox(id: string, over: Partial<SandboxInfo> = {}): SandboxInfo {
  return {
    ...(sampleOf("Sandbox") as SandboxInfo),
    id,
    snapshot_tag: "python",
    snapshot_id: "sn-1",
    state: "running",
    isolation: "kvm",
    confinement: "namespaces",
    started_by: "restore",
    memory_mib: 256,
    vcpus: 1,
    kernels: ["python"],
    metadata: {},
    created_at_unix: Math.floor(Date.now() / 1000) - 5400,
    created_at_unix_ms: Date.now() - 5_400_000,
    last_active_unix: Math.floor(Date.now() / 1000),
    on_timeout: "end",
    auto_resume: false,
    created_by: "local",
    pid: 4242,
    fork_ms: 12.34,
    certificate: {
      clock_skew_ms: 1,
      clock_drift_ppm: 12,
      clock_measured: "snapshot",
      guest_rng: "reseeded",
      ran_before_ms: 0,
      not_reseeded: [],
      kernels: { python: { state: "reseeded", generators: ["random"] } },
      identity: { hostname: id, machine_id: "m", boot_id: "b" },
      disk: "private-overlay",
      memory: "private-copy-on-write",
    },
    branch_count: 0,
    has_branched: false,
    network: { mode: "none", allow: [], egress_limit_bytes: null },
    guest_addr: "",
    ...over,
  };
}

export function image(name: string, over: Partial<ImageInfo> = {}): ImageInfo {
  return {
    id: "sha256:0123456789abcdef",
    names: [name],
    created_at: "2026-01-02T03:04:05.000Z",
    architecture: "amd64",
    bytes: 1.5 * 1024 ** 2,
    source: { kind: "packages", suite: "trixie", packages: ["python3", "python3-numpy"], build_key: "k" },
    config: { env: { A: "1" }, cwd: "/", user: "", entrypoint: [], cmd: ["sh"] },
    ...over,
  };
}

export function snapshot(tag: string, over: Partial<SnapshotInfo> = {}): SnapshotInfo {
  return {
    ...(sampleOf("Snapshot") as SnapshotInfo),
    tag,
    id: `sn-${tag}`,
    dir: `/home/snapshots/sn-${tag}`,
    status: "ready",
    bootable: true,
    created_at_unix: Math.floor(Date.now() / 1000) - 5400,
    image: "python-numpy",
    memory_mib: 256,
    vcpus: 1,
    kernels: ["python"],
    depth: 0,
    ephemeral: false,
    pool: 0,
    network: { mode: "none", allow: [], egress_limit_bytes: null },
    metadata: {},
    ...over,
  };
}

export function details(tag: string): SnapshotDetails {
  return {
    ...(sampleOf("SnapshotDetails") as SnapshotDetails),
    tag,
    id: `sn-${tag}`,
    dir: `/home/snapshots/sn-${tag}`,
    created_at_unix: 1_700_000_000,
    memory_logical_bytes: 268_435_456,
    memory_physical_bytes: 1_048_576,
    vmstate_bytes: 2048,
    isolation: "emulated",
    cpu: "Nehalem-v1",
    disk_layers: 0,
    disk_physical_bytes: 0,
    disk_own_bytes: 0,
    chain_depth: 1,
    ancestors: ["base"],
    dependents: ["child"],
    sandboxes: ["sb-1"],
  };
}

export function status(over: Partial<Status> = {}): Status {
  return {
    ...(sampleOf("Status") as Status),
    version: "0.1.0",
    node: "nodd",
    pid: 4242,
    uptime_secs: 75,
    home: "/home",
    socket: "/run/forkd.sock",
    tls: false,
    accelerator: "kvm",
    accelerator_reason: "a guest booted with it",
    isolation: "kvm",
    confinement: "namespaces",
    confinement_policy: "preferred",
    isolation_policy: "any",
    engine: "qemu",
    sandboxes: 0,
    snapshots: 1,
    images: 1,
    cordoned: false,
    leaving: false,
    pool_waiting: 0,
    branches_in_flight: 0,
    limits: { max_sandboxes: 1000, max_memory_mib: null, max_disk_mib: null, min_free_mib: 512, branch_concurrency: 4 },
    sandbox_limits: { applicable: [], reason: "this host does not use cgroup v2 alone" },
    memory: { committed_mib: 0, available_mib: 4000 },
    disk: { free_mib: 10_000 },
    load: 0.5,
    ...over,
  };
}

export function workspace(name: string, over: Partial<WorkspaceInfo> = {}): WorkspaceInfo {
  return {
    ...(sampleOf("Workspace") as WorkspaceInfo),
    id: `ws-${name}`,
    name,
    source_snapshot_tag: "python",
    status: "running",
    live_sandbox_id: "sb-1",
    created_at_unix: 1_700_000_000,
    last_active_unix: 1_700_000_000,
    ...over,
  };
}

export function token(name: string): TokenInfo {
  const facts = { max_sandboxes: null, created_at_unix: 1_700_000_000, last_used_unix: null, expires_at_unix: null };
  return { name, project: "default", scope: "exec", ...facts, source: "created" };
}

export function processInfo(id: number, fields: Partial<ProcessInfo> = {}): ProcessInfo {
  return {
    ...(sampleOf("Process") as ProcessInfo),
    id,
    pid: 100 + id,
    args: ["sleep", "9"],
    cwd: "/",
    user: "root",
    terminal: false,
    stdin_open: false,
    started_at_ms: Date.now() - 5_400_000,
    state: "running",
    timed_out: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    ...fields,
  };
}

type Said = { stdout?: string | Buffer; stderr?: string; exit?: Partial<ProcessExit> };

/** Events of process 7, up to its end if it has one */
export function processEvents(said: Said = {}, started: object = {}): string {
  const event = (type: string, data: object): string => `id: 1-1\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
  const output = (type: "stdout" | "stderr"): string =>
    said[type] === undefined ? "" : event(type, { offset: 0, base64: Buffer.from(said[type] as string).toString("base64") });
  const first = event("started", { id: 7, pid: 107, tag: null, terminal: false, stdout_offset: 0, stderr_offset: 0, ...started });
  const end = said.exit ? event("exit", { exit_code: 0, signal: null, timed_out: false, ...said.exit }) : "";
  return first + output("stdout") + output("stderr") + end;
}

export function preview(): Preview {
  return { url: "http://8000-sb-1.localhost:8889/?forkd_preview=fkp_x", token: "fkp_x", expires_at_unix: 1_700_000_000 };
}

export function network(over: Partial<NetworkInfo> = {}): NetworkInfo {
  return {
    ...(sampleOf("Network") as NetworkInfo),
    mode: "allow",
    allow: ["a.example"],
    egress_used_bytes: 0,
    connections_open: 0,
    connections_total: 0,
    connections_refused: 0,
    bytes_up: 0,
    bytes_down: 0,
    recent: [],
    ...over,
  };
}
