// Hand-written options: of methods that are more than one request, and parts of generated ones.

import type { OnceOptions } from "./call-options.ts";
import type {
  EvalFields,
  ForkSandboxOptions,
  PushSnapshotOptions,
  SpawnOptions,
  StartProcessOptions,
  WatchFilesFields,
} from "./options.gen.ts";
import type { DisplayResult, EventType, OutputLost, SignalProcess } from "./schema.gen.ts";

/** Limits that the host enforces on a sandbox. One that the host cannot enforce is refused: LIMIT_UNAVAILABLE */
export type LimitOptions = Pick<SpawnOptions, "memoryLimitMib" | "cpuLimit" | "cpuWeight" | "pidsLimit" | "ioLimitMbps">;

export type SpawnFields = Omit<SpawnOptions, keyof OnceOptions | "n">;

export type ForkOptions = Omit<ForkSandboxOptions, "n">;

/** A login for a registry or a web server, and whether it may be sent over plain http */
export type RemoteOptions = Pick<PushSnapshotOptions, "username" | "password" | "insecureHttp">;

export type EvalOptions = Omit<EvalFields, "context"> & {
  /** The interpreter that runs the code, in place of the language's first one; see {@link Sandbox.contexts} */
  context?: string | { id: string } | undefined;
};

/** Callbacks while code runs. With any of them, an abort of `signal` interrupts the code at once */
export type EvalHandlers = {
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** Called with each displayed object, in order; the value is the last one, if it has more than text */
  onResult?: ((result: DisplayResult) => void | Promise<void>) | undefined;
};

/** Options of a new process */
export type ProcessFields = Omit<StartProcessOptions, keyof OnceOptions>;

export type WatchFilesOptions = Omit<WatchFilesFields, "timeoutMs">;

/** Called with output, in order. The process waits for a returned promise */
export type OutputHandlers = {
  /** Characters are never split */
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** Requested output that is no longer retained */
  onLost?: ((lost: OutputLost) => void | Promise<void>) | undefined;
};

/** "start" (all retained output), "now", or the `cursor` of a process handle */
export type OutputPlace = "start" | "now" | (string & {});

export type WatchProcessOptions = {
  /** Ends the watch; the process continues */
  signal?: AbortSignal | undefined;
  /** Start position. @default "start" */
  from?: OutputPlace | undefined;
  /** false: ends with the output that exists now. @default true */
  follow?: boolean | undefined;
};

export type SignalName = SignalProcess["signal"];

/** A request to a server in a guest, in the form of `fetch`. Redirects are not followed */
export type PortRequest = Omit<RequestInit, "body" | "redirect"> & {
  /** Also bytes in pieces (not in browsers) */
  body?: RequestInit["body"] | AsyncIterable<Uint8Array>;
};

export type EventsOptions = {
  /** Ends the iteration */
  signal?: AbortSignal | undefined;
  /** Only events after this id; of a gateway, after a position that `onPosition` named */
  since?: number | string | undefined;
  /** Gets the position in the stream before each event. Of a gateway it is not the event's id, which counts on one node */
  onPosition?: ((position: string) => void) | undefined;
  types?: EventType[] | undefined;
  /** Only events of this sandbox */
  sandbox?: string | undefined;
};
