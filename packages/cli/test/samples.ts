// Answers of a daemon, complete.

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
    id,
    name: null,
    snapshot_tag: "python",
    snapshot_id: "sn-1",
    state: "running",
    reason: null,
    isolation: "kvm",
    confinement: "namespaces",
    memory_mib: 256,
    vcpus: 1,
    disk_mib: null,
    kernels: ["python"],
    metadata: {},
    created_at_unix: Math.floor(Date.now() / 1000) - 90,
    last_active_unix: Math.floor(Date.now() / 1000),
    expires_at_unix: null,
    idle_timeout_secs: null,
    on_timeout: "end",
    auto_resume: false,
    created_by: "local",
    pid: 4242,
    fork_ms: 12.34,
    certificate: {
      clock_skew_ms: 1,
      guest_rng: "reseeded",
      kernels: { python: { state: "reseeded", generators: ["random"] } },
      identity: { hostname: id, machine_id: "m", boot_id: "b" },
      disk: "private-overlay",
      memory: "private-copy-on-write",
    },
    shares: [],
    branch_count: 0,
    has_branched: false,
    memory_limit_mib: null,
    network: { mode: "none", allow: [], egress_limit_bytes: null },
    cpu_limit: null,
    cpu_weight: null,
    pids_limit: null,
    io_limit_mbps: null,
    netns: null,
    guest_addr: "",
    last_branch_memory_path: null,
    warnings: [],
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
    tag,
    id: `sn-${tag}`,
    dir: `/home/snapshots/sn-${tag}`,
    status: "ready",
    bootable: true,
    created_at_unix: Math.floor(Date.now() / 1000) - 3700,
    image: "python-numpy",
    memory_mib: 256,
    vcpus: 1,
    disk_mib: null,
    kernels: ["python"],
    depth: 0,
    parent_tag: null,
    branched_from: null,
    pause_ms: null,
    delta_bytes: null,
    diff_ms: null,
    diff_physical_bytes: null,
    diff_logical_bytes: null,
    ephemeral: false,
    pool: 0,
    network: { mode: "none", allow: [], egress_limit_bytes: null },
    metadata: {},
    error: null,
    warning: null,
    warnings: [],
    ...over,
  };
}

export function details(tag: string): SnapshotDetails {
  return {
    tag,
    id: `sn-${tag}`,
    dir: `/home/snapshots/sn-${tag}`,
    created_at_unix: 1_700_000_000,
    memory_logical_bytes: 268_435_456,
    memory_physical_bytes: 1_048_576,
    vmstate_bytes: 2048,
    disk_mib: null,
    disk_layers: 0,
    disk_physical_bytes: 0,
    disk_own_bytes: 0,
    parent_tag: null,
    parent_content_hash: null,
    chain_depth: 1,
    ancestors: ["base"],
    dependents: ["child"],
    sandboxes: ["sb-1"],
  };
}

export function status(over: Partial<Status> = {}): Status {
  return {
    version: "0.1.0",
    pid: 4242,
    uptime_secs: 75,
    home: "/home",
    socket: "/run/forkd.sock",
    bind: null,
    tls: false,
    proxy_url: null,
    accelerator: "kvm",
    accelerator_reason: "a guest booted with it",
    isolation: "kvm",
    confinement: "namespaces",
    confinement_policy: "preferred",
    confinement_reason: null,
    engine: "qemu",
    sandboxes: 0,
    snapshots: 1,
    images: 1,
    pool_waiting: 0,
    branches_in_flight: 0,
    limits: { max_sandboxes: 1000, max_memory_mib: null, max_disk_mib: null, min_free_mib: 512, branch_concurrency: 4 },
    sandbox_limits: { applicable: [], reason: "this host does not use cgroup v2 alone" },
    memory: { committed_mib: 0, available_mib: 4000 },
    ...over,
  };
}

export function workspace(name: string, over: Partial<WorkspaceInfo> = {}): WorkspaceInfo {
  return {
    id: `ws-${name}`,
    name,
    source_snapshot_tag: "python",
    current_state_tag: null,
    status: "running",
    live_sandbox_id: "sb-1",
    created_at_unix: 1_700_000_000,
    last_active_unix: 1_700_000_000,
    last_branch_memory_path: null,
    warnings: [],
    ...over,
  };
}

export function token(name: string): TokenInfo {
  return { name, scope: "exec", max_sandboxes: null, created_at_unix: 1_700_000_000, last_used_unix: null, source: "created" };
}

export function processInfo(id: number, fields: Partial<ProcessInfo> = {}): ProcessInfo {
  return {
    id,
    pid: 100 + id,
    tag: null,
    args: ["sleep", "9"],
    cwd: "/",
    user: "root",
    terminal: false,
    stdin_open: false,
    started_at_ms: Date.now() - 65_000,
    state: "running",
    exit_code: null,
    signal: null,
    timed_out: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    ...fields,
  };
}

type Said = { stdout?: string | Buffer; stderr?: string; exit?: Partial<ProcessExit> };

/** The events of process 7, up to its end where there is one */
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
    mode: "allow",
    allow: ["a.example"],
    egress_limit_bytes: null,
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
