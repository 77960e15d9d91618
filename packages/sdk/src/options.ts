// What callers can choose. Names are the wire's in camelCase; times end in Secs where the daemon keeps them, in Ms where this package does.

import type { Fetch } from "./transport.ts";
import type {
  Env,
  EventType,
  Language,
  Metadata,
  NetworkMode,
  OnTimeout,
  OutputLost,
  Progress,
  SandboxState,
  Scope,
  Share,
  SignalProcess,
  SnapshotStatus,
  TerminalSize,
} from "./schema.gen.ts";

/** Where the daemon is. Without anything: FORKD_URL, FORKD_SOCKET, then the daemon's default socket; in a browser http://127.0.0.1:8889 */
export type ControllerOptions = {
  /** `http://…`, `https://…` or `unix:///path` */
  url?: string | undefined;
  /** Path of the daemon's Unix socket */
  socket?: string | undefined;
  /** Without it FORKD_TOKEN; a Unix socket needs none */
  token?: string | undefined;
  /** How long a call may take; 0: for ever. @default 60000 */
  timeoutMs?: number | undefined;
  /** How often a call that is safe to repeat is repeated. @default 2 */
  retries?: number | undefined;
  /** Used instead of the global fetch, for everything but Unix sockets */
  fetch?: Fetch | undefined;
  /** @deprecated the older SDK's name for `url` */
  baseUrl?: string | undefined;
};

/** Every call takes these */
export type CallOptions = {
  /** Ends the call; it rejects with the signal's reason */
  signal?: AbortSignal | undefined;
  /** How long this call may take; 0: for ever */
  timeoutMs?: number | undefined;
};

/** Calls that can be made exactly once, however often they are sent */
export type OnceOptions = CallOptions & {
  /**
   * Names this call. With a key it is repeated when its answer was lost, and the daemon goes on with it when the caller has gone.
   * Creations make one up; null: no key, so that the daemon gives up what is aborted here
   */
  idempotencyKey?: string | null | undefined;
};

export type PageOptions = CallOptions & {
  /** Entries per page; without it, all */
  limit?: number | undefined;
  /** `nextCursor` of the page before */
  cursor?: string | undefined;
};

/** A plain array that also knows where the next page starts; null on the last one */
export type Page<T> = T[] & { readonly nextCursor: string | null };

export type ProgressOptions = OnceOptions & {
  /** Called for every step of long work */
  onProgress?: ((progress: Progress) => void) | undefined;
};

export type ListSnapshotsOptions = PageOptions & {
  status?: SnapshotStatus | undefined;
  /** Only those that have all of these */
  metadata?: Metadata | undefined;
};

export type WarmUpOptions = {
  /** Programs, in order; each must exit with 0 */
  exec?: string[][] | undefined;
  /** Interpreters to keep warm, with the code that warms them */
  kernels?: Array<{ language: Language; code?: string | undefined; cwd?: string | undefined }> | undefined;
  /** For each program and each code */
  timeoutSecs?: number | undefined;
};

/** What a sandbox may connect to */
export type NetworkOptions = {
  /** none: nothing; allow: what the rules say; open: any public address, and what the rules say */
  mode: NetworkMode;
  /** `example.org`, `*.example.org:443`, `10.1.2.0/24:5432`, `[fd00::1]:80,8000-8100` */
  allow?: string[] | undefined;
  /** What may leave the sandbox in all; null: any number of bytes */
  egressLimitBytes?: number | null | undefined;
};

export type CreateSnapshotOptions = ProgressOptions & {
  /** A stored image; without it, the daemon's default image */
  image?: string | undefined;
  memoryMib?: number | undefined;
  vcpus?: number | undefined;
  /** Room for what the guest writes, on the host's disk; without it, that is in the guest's memory */
  diskMib?: number | undefined;
  /** Without it, a python kernel where the image has python3 */
  warmUp?: WarmUpOptions | undefined;
  /** Environment of every process */
  env?: Env | undefined;
  metadata?: Metadata | undefined;
  /** During the warm-up, and for its forks unless they say otherwise. @default none */
  network?: NetworkOptions | undefined;
  /** Of the older API, without effect; so are the next four */
  kernel?: string | undefined;
  rootfs?: string | undefined;
  rw?: boolean | undefined;
  tap?: string | undefined;
  bootWaitSecs?: number | undefined;
};

export type UpdateSnapshotOptions = CallOptions & {
  /** The new tag */
  tag?: string | undefined;
  /** Replaces what is there */
  metadata?: Metadata | undefined;
  /** How many VMMs wait for it, started in advance */
  pool?: number | undefined;
};

export type DeleteSnapshotOptions = CallOptions & {
  /** Also removes the snapshots that build on it */
  cascade?: boolean | undefined;
  /** Takes the tag away; what is still needed of it stays until nothing needs it */
  force?: boolean | undefined;
};

/** What an image is made of: Debian packages, an image of an OCI registry, or a file of the daemon's machine */
export type ImageSource = PackagesSource | RegistrySource | FileSource;

export type PackagesSource = {
  name: string;
  /** None: a minimal Debian */
  packages: string[];
  /** Files and folders of the daemon's machine, copied before the commands run; only through the Unix socket */
  copy?: Array<{ from: string; to: string }> | undefined;
  /** Shell commands inside the new root, in order */
  run?: string[] | undefined;
  /** Release of the distribution; without it, the one of the daemon's machine */
  suite?: string | undefined;
  /** Where packages come from; without it, the apt sources of the daemon's machine */
  mirror?: string | undefined;
  /** Limit of the unpacked size */
  maxBytes?: number | undefined;
  /** Build even when an image made from the same inputs is there */
  force?: boolean | undefined;
};

export type RegistrySource = {
  reference: string;
  /** Without it, the last part of the reference, with its tag */
  name?: string | undefined;
  /** Plain http to a registry that is not the daemon's machine */
  insecureHttp?: boolean | undefined;
  username?: string | undefined;
  password?: string | undefined;
  /** Limit of the unpacked size */
  maxBytes?: number | undefined;
};

export type FileSource = {
  name: string;
  /** Absolute path of an archive, or of a folder that is an OCI layout; only through the Unix socket */
  file: string;
  /** Limit of the unpacked size */
  maxBytes?: number | undefined;
};

/** What the host holds a sandbox to. What cannot be applied there is refused: LIMIT_UNAVAILABLE */
export type LimitOptions = {
  /** Memory of the host that it may take, its VMM included */
  memoryLimitMib?: number | null | undefined;
  /** CPUs' worth of time, such as 0.5 */
  cpuLimit?: number | null | undefined;
  /** Share of the CPUs when several want them, 1 to 10000; 100 is usual */
  cpuWeight?: number | null | undefined;
  /** Threads of its VMM */
  pidsLimit?: number | null | undefined;
  /** Megabytes a second that it may read, and as many that it may write, on the disk of the store */
  ioLimitMbps?: number | null | undefined;
};

/** What a new sandbox can be given */
export type ForkFields = LimitOptions & {
  /** Environment of every process */
  env?: Env | undefined;
  metadata?: Metadata | undefined;
  /** What it may connect to; without it, what the snapshot says */
  network?: NetworkOptions | undefined;
  /**
   * Folders of the daemon's machine that it sees live and read-only. Only through the Unix socket, or with scope admin below the
   * daemon's `share_roots`. Without it, those of the sandbox it descends from; `[]`: none
   */
  shares?: Share[] | undefined;
  /** It ends so long after now; null: never */
  ttlSecs?: number | null | undefined;
  /** It ends when nobody used it for so long; null: never */
  idleTimeoutSecs?: number | null | undefined;
  /** Whether it ends or sleeps when its time is over. @default "end" */
  onTimeout?: OnTimeout | undefined;
  /** Whether it wakes up by itself when it is suspended and somebody uses it */
  autoResume?: boolean | undefined;
};

export type SpawnFields = ForkFields & {
  /** Only for a single one */
  name?: string | undefined;
  /** Of the older API, without effect; so are the next three */
  perChildNetns?: boolean | undefined;
  prewarm?: boolean | undefined;
  liveFork?: boolean | undefined;
  hugepages?: boolean | undefined;
};

export type SpawnOptions = OnceOptions &
  SpawnFields & {
    /** How many. @default 1 */
    n?: number | undefined;
  };

export type ForkOptions = OnceOptions &
  ForkFields & {
    /** Keeps the snapshot under this tag; without it, it goes when nothing needs it any more */
    tag?: string | undefined;
  };

export type ListSandboxesOptions = PageOptions & {
  /** Only forks of this snapshot */
  tag?: string | undefined;
  /** Without it, running, paused and suspended */
  state?: SandboxState | SandboxState[] | undefined;
  /** Only those that have all of these */
  metadata?: Metadata | undefined;
};

/** Which sandboxes to end: those of one snapshot, or all */
export type KillSandboxesOptions = CallOptions & { tag?: string | undefined; all?: boolean | undefined };

export type UpdateSandboxOptions = CallOptions & {
  /** null takes it away */
  name?: string | null | undefined;
  /** Replaces what is there */
  metadata?: Metadata | undefined;
  /** It ends so long after now; null: never */
  ttlSecs?: number | null | undefined;
  idleTimeoutSecs?: number | null | undefined;
  onTimeout?: OnTimeout | undefined;
  autoResume?: boolean | undefined;
};

export type BranchOptions = OnceOptions & {
  /** Without it, one is made up */
  tag?: string | undefined;
  metadata?: Metadata | undefined;
  /** false: answer as soon as the source runs again. @default true */
  wait?: boolean | undefined;
  /** Of the older API: all modes are the same short pause */
  mode?: "full" | "diff" | "live" | undefined;
  diff?: boolean | undefined;
  live?: boolean | undefined;
  measureDiff?: boolean | undefined;
  parentTag?: string | undefined;
};

export type ExecOptions = OnceOptions & {
  /** How long the program may run. @default 30 */
  timeoutSecs?: number | undefined;
  stdin?: string | undefined;
  /** Added to the sandbox's environment */
  env?: Env | undefined;
  cwd?: string | undefined;
  user?: string | undefined;
  /** Of stdin, stdout and stderr. @default "utf8" */
  encoding?: "utf8" | "base64" | undefined;
  /** Of each of stdout and stderr */
  maxOutputBytes?: number | undefined;
};

/** What a new process can be given */
export type ProcessFields = {
  /** Added to the sandbox's environment */
  env?: Env | undefined;
  cwd?: string | undefined;
  user?: string | undefined;
  /** Names it; free again when it has ended */
  tag?: string | undefined;
  /** Whether it is written to; otherwise its stdin is empty. @default false */
  stdin?: boolean | undefined;
  /** Gives it a terminal: everything it prints is stdout, and stdin is what is typed */
  terminal?: TerminalSize | undefined;
  /** It and its process group are ended after so long. @default never */
  timeoutSecs?: number | undefined;
};

export type StartProcessOptions = OnceOptions & ProcessFields;

/** Called with what comes, in order; the process waits for a promise that is returned */
export type OutputHandlers = {
  /** Characters are never cut in two */
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** Output that was asked for and is no longer kept */
  onLost?: ((lost: OutputLost) => void | Promise<void>) | undefined;
};

/** "start" (all that is kept), "now", or the `cursor` of a process handle */
export type OutputPlace = "start" | "now" | (string & {});

export type WatchProcessOptions = {
  /** Ends the watching; the process goes on */
  signal?: AbortSignal | undefined;
  /** Where to begin. @default "start" */
  from?: OutputPlace | undefined;
  /** false: ends with what there is. @default true */
  follow?: boolean | undefined;
};

export type WriteStdinOptions = CallOptions & {
  /** No more will come; a terminal gets the key that says so */
  close?: boolean | undefined;
};

export type SignalName = SignalProcess["signal"];

export type SignalOptions = CallOptions & {
  /** The whole process group, or the process alone. @default "group" */
  scope?: "group" | "process" | undefined;
};

export type LogsOptions = CallOptions & {
  /** @default "console" */
  source?: "console" | "agent" | "vmm" | undefined;
  /** Only the last lines */
  tail?: number | undefined;
  /** Goes on until the signal aborts or the sandbox is gone */
  follow?: boolean | undefined;
};

export type PreviewOptions = CallOptions & {
  /** At most 7 days. @default 3600 */
  expiresInSecs?: number | undefined;
};

/** A request to a server in a guest: what `fetch` takes. Redirects are not followed */
export type PortRequest = Omit<RequestInit, "body" | "redirect"> & {
  /** Also bytes that come bit by bit (not in browsers) */
  body?: RequestInit["body"] | AsyncIterable<Uint8Array>;
};

export type EventsOptions = {
  /** Ends the iteration */
  signal?: AbortSignal | undefined;
  /** Only events after this id */
  since?: number | undefined;
  types?: EventType[] | undefined;
  /** Only events of this sandbox */
  sandbox?: string | undefined;
};

export type CreateWorkspaceOptions = OnceOptions & LimitOptions & { perChildNetns?: boolean | undefined };

export type SuspendWorkspaceOptions = CallOptions & { diff?: boolean | undefined };

export type CreateTokenOptions = CallOptions & {
  /** @default "exec" */
  scope?: Scope | undefined;
  /** The most sandboxes that live at once; null: no limit of its own */
  maxSandboxes?: number | null | undefined;
};

export type GcOptions = CallOptions & { dryRun?: boolean | undefined };

export type StopOptions = CallOptions & {
  /** Without it, sandboxes go on and the next daemon adopts them */
  killSandboxes?: boolean | undefined;
  /** Only when there are no sandboxes, no waiting VMMs and no other requests; else IN_USE */
  ifIdle?: boolean | undefined;
};
