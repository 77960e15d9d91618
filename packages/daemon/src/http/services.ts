// What requests are served with. The manager is named by what is asked of it, so that tests need no VMs.

import type { Duplex } from "node:stream";
import type { Event, GcResult, Status } from "../api/daemon.ts";
import type { EvalRequest, EvalResult, ExecRequest, ExecResult, PingResult } from "../api/exec.ts";
import type * as files from "../api/files.ts";
import type { ContextInfo, CreateContext } from "../api/contexts.ts";
import type { CreatedImage, CreateImage, ImageInfo } from "../api/image.ts";
import type { HubListing, HubQuery, PullSnapshot, PushedSnapshot, PushSnapshot } from "../api/hub.ts";
import type { NetworkInfo, SetNetwork } from "../api/network.ts";
import type * as pack from "../api/pack.ts";
import type { PortInfo } from "../api/ports.ts";
import type * as process from "../api/process.ts";
import type * as sandbox from "../api/sandbox.ts";
import type * as snapshot from "../api/snapshot.ts";
import type { CreateWorkspace, WorkspaceInfo } from "../api/workspace.ts";
import type { ResolvedConfig } from "../config.ts";
import type { E2b } from "../e2b/e2b.ts";
import type { Caller } from "../manager/caller.ts";
import type { GetAttributes, SetAttributes, WriteFile } from "../manager/files.ts";
import type { RunningEval } from "../manager/running-eval.ts";
import type { WatchedProcess } from "../manager/processes.ts";
import type { AuditLog } from "../observe/audit.ts";
import type { Logger } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { AccessTokens } from "../store/access-tokens.ts";
import type { Previews } from "../store/previews.ts";
import type { Tokens } from "../store/tokens.ts";
import type { AuthFailures } from "./auth-failures.ts";
import type { Idempotency } from "./idempotency.ts";
import type { InFlight } from "./in-flight.ts";
import type { ServerPool } from "./proxy/pool.ts";

export type ManagerStatus = Omit<Status, "socket" | "bind" | "tls" | "proxy_url" | "pid" | "uptime_secs">;
export type Page<T> = { items: T[]; nextCursor: string | null };
export type EventFilter = {
  since?: number | undefined;
  limit?: number | undefined;
};

export type EventsApi = {
  readonly lastId: number;
  list(filter: EventFilter): Event[];
  /** returns what ends the subscription */
  subscribe(listener: (event: Event) => void): () => void;
};

export type SandboxesApi = {
  list(query: sandbox.ListSandboxes): Page<sandbox.SandboxInfo>;
  get(id: string): sandbox.SandboxInfo;
  create(request: sandbox.CreateSandboxes, caller: Caller): Promise<sandbox.SandboxInfo[]>;
  createEach(request: sandbox.CreateSandboxes, caller: Caller): Promise<sandbox.ForkOutcomes>;
  update(id: string, request: sandbox.UpdateSandbox, caller: Caller): Promise<sandbox.SandboxInfo>;
  remove(id: string, caller: Caller): Promise<void>;
  removeMany(query: sandbox.DeleteSandboxes, caller: Caller): Promise<string[]>;
  pause(id: string, caller: Caller): Promise<sandbox.SandboxInfo>;
  stats(id: string): Promise<sandbox.SandboxStats>;
};

export type SuspensionApi = {
  suspend(id: string, caller: Caller): Promise<sandbox.SandboxInfo>;
  /** Also one that is only paused */
  resume(id: string, caller: Caller): Promise<sandbox.SandboxInfo>;
};

export type NetworksApi = {
  get(id: string): NetworkInfo;
  set(id: string, request: SetNetwork, caller: Caller): Promise<NetworkInfo>;
};

/** What is done inside a sandbox */
export type InsideApi = {
  ping(id: string): Promise<PingResult>;
  exec(id: string, request: ExecRequest, caller: Caller): Promise<ExecResult>;
  eval(id: string, request: EvalRequest, caller: Caller): Promise<EvalResult>;
  evalEvents(id: string, request: EvalRequest, caller: Caller): RunningEval;
  logs(id: string, query: sandbox.LogsQuery, signal: AbortSignal): AsyncIterable<string>;
};

/** Interpreters of a sandbox */
export type ContextsApi = {
  list(id: string): Promise<ContextInfo[]>;
  create(id: string, request: CreateContext, caller: Pick<Caller, "signal">): Promise<ContextInfo>;
  ensure(id: string, request: CreateContext, caller: Pick<Caller, "signal">): Promise<ContextInfo>;
  remove(id: string, context: string): Promise<void>;
  restart(id: string, context: string, caller: Pick<Caller, "signal">): Promise<ContextInfo>;
  interrupt(id: string, context: string): Promise<void>;
};

export type FilesApi = {
  read(id: string, query: files.ReadFileQuery, caller: Caller): Promise<AsyncIterable<Buffer>>;
  write(id: string, query: WriteFile, content: AsyncIterable<Uint8Array>, caller: Caller): Promise<files.WriteResult>;
  stat(id: string, query: files.StatFileQuery, caller: Caller): Promise<files.FileInfo>;
  list(id: string, query: files.ListFilesQuery, caller: Caller): Promise<Page<files.ListedFile>>;
  makeDirectory(id: string, request: files.MakeDirectory, caller: Caller): Promise<void>;
  move(id: string, request: files.MoveFile, caller: Caller): Promise<void>;
  copy(id: string, request: files.CopyFile, caller: Caller): Promise<void>;
  remove(id: string, query: files.RemoveFileQuery, caller: Caller): Promise<void>;
  chmod(id: string, request: files.ChmodFile, caller: Caller): Promise<void>;
  chown(id: string, request: files.ChownFile, caller: Caller): Promise<void>;
  symlink(id: string, request: files.MakeSymlink, caller: Caller): Promise<void>;
  attributes(id: string, request: GetAttributes, caller: Caller): Promise<Record<string, string>[]>;
  setAttributes(id: string, request: SetAttributes, caller: Caller): Promise<void>;
  watch(id: string, query: files.WatchFilesQuery, caller: Caller): Promise<AsyncIterable<files.FileEvent>>;
  pack(id: string, query: files.ReadTarQuery, caller: Caller): Promise<AsyncIterable<Buffer>>;
  unpack(id: string, query: files.WriteTarQuery, archive: AsyncIterable<Uint8Array>, caller: Caller): Promise<files.UnpackResult>;
};

/** A sandbox whose servers are used; it counts as used until this is closed */
export type OpenSandbox = {
  readonly id: string;
  /** Rejects with PORT_CLOSED when nothing listens there */
  connect(port: number, signal?: AbortSignal): Promise<Duplex>;
  /** What an error of such a connection means when the sandbox has ended */
  explain(error: unknown): unknown;
  close(): void;
};

/** Servers inside sandboxes */
export type PortsApi = {
  list(id: string, signal: AbortSignal): Promise<PortInfo[]>;
  /** The id behind an id or name; undefined: there is none */
  idOf(idOrName: string): string | undefined;
  open(id: string): Promise<OpenSandbox>;
};

/** Live processes in a sandbox, each by id or tag */
export type ProcessesApi = {
  start(id: string, request: process.StartProcess, caller: Caller): Promise<process.ProcessInfo>;
  startWatched(id: string, request: process.StartProcess, caller: Caller): Promise<WatchedProcess>;
  list(id: string): Promise<process.ProcessInfo[]>;
  get(id: string, process: string): Promise<process.ProcessInfo>;
  watch(id: string, process: string, from: process.OutputFrom & { follow?: boolean | undefined }): Promise<WatchedProcess>;
  write(id: string, process: string, content: AsyncIterable<Uint8Array>, opts: { close: boolean; signal: AbortSignal }): Promise<void>;
  signal(id: string, process: string, request: process.SignalProcess): Promise<void>;
  resize(id: string, process: string, size: process.TerminalSize): Promise<void>;
  kill(id: string, process: string): Promise<void>;
};

export type BranchesApi = {
  branch(id: string, request: snapshot.BranchRequest, caller: Caller): Promise<{ info: snapshot.SnapshotInfo; waited: boolean }>;
  fork(id: string, request: sandbox.ForkSandbox, caller: Caller): Promise<snapshot.ForkedSandboxes>;
};

export type SnapshotsApi = {
  list(query: snapshot.ListSnapshots): Promise<Page<snapshot.SnapshotInfo>>;
  get(tag: string): Promise<snapshot.SnapshotInfo>;
  details(tag: string): Promise<snapshot.SnapshotDetails>;
  create(request: snapshot.CreateSnapshot, caller: Caller): Promise<snapshot.SnapshotInfo>;
  update(tag: string, request: snapshot.UpdateSnapshot, caller: Caller): Promise<snapshot.SnapshotInfo>;
  remove(tag: string, query: snapshot.DeleteSnapshot, caller: Caller): Promise<void>;
  compact(tag: string, to: string, caller: Caller): Promise<snapshot.SnapshotInfo>;
};

export type PacksApi = {
  info(tag: string, request: pack.PreparePack, caller: Caller): Promise<pack.PackInfo>;
  read(tag: string, request: pack.PreparePack, caller: Caller): Promise<{ bytes: AsyncIterable<Buffer>; size: number }>;
  unpack(bytes: AsyncIterable<Uint8Array>, query: pack.UnpackQuery, caller: Caller): Promise<pack.Unpacked>;
  keys(): Promise<pack.KeyInfo[]>;
  key(name: string): Promise<pack.KeyInfo>;
  createKey(request: pack.CreateKey): Promise<pack.KeyInfo>;
  removeKey(name: string): Promise<void>;
};

export type ImagesApi = {
  list(): Promise<ImageInfo[]>;
  get(name: string): Promise<ImageInfo>;
  create(request: CreateImage, caller: Caller): Promise<CreatedImage>;
  remove(name: string, caller: Caller): Promise<void>;
};

export type HubApi = {
  push(tag: string, request: PushSnapshot, caller: Caller): Promise<PushedSnapshot>;
  pull(request: PullSnapshot, caller: Caller): Promise<pack.Unpacked>;
  list(query: HubQuery, caller: Caller): Promise<HubListing>;
};

export type WorkspacesApi = {
  list(): Promise<WorkspaceInfo[]>;
  get(name: string): Promise<WorkspaceInfo>;
  create(request: CreateWorkspace, caller: Caller): Promise<WorkspaceInfo>;
  remove(name: string, caller: Caller): Promise<void>;
  suspend(name: string, caller: Caller): Promise<WorkspaceInfo>;
  resume(name: string, caller: Caller): Promise<WorkspaceInfo>;
};

export type ManagerApi = {
  /** why it takes no work now; null or absent when it does */
  readonly ready?: string | null;
  status(): Promise<ManagerStatus>;
  gc(opts: { dryRun: boolean }): Promise<GcResult>;
  tree(): Promise<snapshot.Tree>;
  stats(): Promise<sandbox.SandboxStats[]>;
  readonly events: EventsApi;
  readonly sandboxes: SandboxesApi;
  readonly suspension: SuspensionApi;
  readonly networks: NetworksApi;
  readonly inside: InsideApi;
  readonly contexts: ContextsApi;
  readonly ports: PortsApi;
  readonly processes: ProcessesApi;
  readonly files: FilesApi;
  readonly branches: BranchesApi;
  readonly snapshots: SnapshotsApi;
  readonly packs: PacksApi;
  readonly images: ImagesApi;
  readonly hub: HubApi;
  readonly workspaces: WorkspacesApi;
};

/** What the daemon tells about itself, and what it lets itself be told */
export type DaemonApi = {
  version: string;
  socket: string;
  /** HOST:PORT as it is served, null without TCP */
  bind: string | null;
  tls: boolean;
  startedAtMs: number;
  /** aborted when the daemon takes no more work */
  stopping: AbortSignal;
  /** begins to stop; what is in flight is answered first */
  stop(opts: { killSandboxes: boolean }): void;
  /** The same unless somebody other than the request with this signal uses it: IN_USE then */
  stopIfIdle(opts: { killSandboxes: boolean }, own: AbortSignal): void;
};

export type Services = {
  manager: ManagerApi;
  daemon: DaemonApi;
  config: ResolvedConfig;
  metrics: Metrics;
  tokens: Tokens;
  previews: Previews;
  /** who may use a sandbox by E2B's protocol */
  accessTokens: AccessTokens;
  e2b: E2b;
  pool: ServerPool;
  failures: AuthFailures;
  idempotency: Idempotency;
  inFlight: InFlight;
  audit: AuditLog | null;
  log: Logger;
  limits: Limits;
};

/** Against clients that are slow, by intent or not */
export type Limits = {
  /** of a JSON body */
  bodyBytes: number;
  /** until the headers are complete */
  headersMs: number;
  /** until a JSON body is complete */
  bodyMs: number;
  /** between two pieces of an upload */
  uploadIdleMs: number;
  /** how long the rest of a body is read away that nobody wants */
  lingerMs: number;
  /** until a server in a guest begins to answer; its body may take as long as it likes */
  serverMs: number;
  /** between two signs of life on a stream of events; a client that reads nothing for several of them is dropped */
  heartbeatMs: number;
};

export const LIMITS: Limits = {
  bodyBytes: 16 * 1024 * 1024,
  headersMs: 15_000,
  bodyMs: 60_000,
  uploadIdleMs: 60_000,
  lingerMs: 5_000,
  serverMs: 300_000,
  heartbeatMs: 15_000,
};
