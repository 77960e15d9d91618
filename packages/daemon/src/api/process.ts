// Live processes: started, watched, written to, signalled.

import * as z from "zod";
import { bySandbox, env, flag, name, problem, sandboxId } from "./common.ts";
import type { Route } from "./route.ts";

const MAX_SECS = 366 * 24 * 3600;

const SIGNALS = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGILL",
  "SIGTRAP",
  "SIGABRT",
  "SIGBUS",
  "SIGFPE",
  "SIGKILL",
  "SIGUSR1",
  "SIGSEGV",
  "SIGUSR2",
  "SIGPIPE",
  "SIGALRM",
  "SIGTERM",
  "SIGCHLD",
  "SIGCONT",
  "SIGSTOP",
  "SIGTSTP",
  "SIGTTIN",
  "SIGTTOU",
  "SIGURG",
  "SIGXCPU",
  "SIGXFSZ",
  "SIGVTALRM",
  "SIGPROF",
  "SIGWINCH",
  "SIGIO",
  "SIGPWR",
  "SIGSYS",
] as const;

/** A number is an id, and the last part of a path names what is there */
const tag = name
  .refine((text) => !/^\d+$/.test(text) && text !== "stream", "must not be a number, nor 'stream'")
  .meta({ id: "ProcessTag", description: "A name with at least one character that is no digit, and not 'stream'" });

const side = z.int().min(1).max(65_535);

const terminalSize = z.strictObject({ rows: side, cols: side }).meta({ id: "TerminalSize" });

const startProcess = z
  .strictObject({
    args: z.array(z.string()).min(1).max(4096).meta({ description: "The program and its arguments; no shell" }),
    env: env.optional().meta({ description: "Added to the environment of the sandbox" }),
    cwd: z.string().min(1).max(4096).optional().meta({ description: "Working directory" }),
    user: z.string().min(1).max(256).optional().meta({ description: "User of the guest that runs it; without it root" }),
    tag: tag.optional().meta({ description: "Names the process; free again when it has ended" }),
    stdin: z.boolean().default(false).meta({ description: "Whether it is written to; otherwise its stdin is empty" }),
    terminal: terminalSize
      .optional()
      .meta({ description: "Gives it a terminal: everything it prints is stdout, and stdin is what is typed" }),
    timeout_secs: z
      .number()
      .positive()
      .max(MAX_SECS)
      .optional()
      .meta({ description: "It and its process group are ended after so long; without it, never" }),
  })
  .meta({ id: "StartProcess" });

const exit = {
  exit_code: z.int().meta({ description: "128 + n after signal n, 124 after a time-out" }),
  signal: z.string().nullable(),
  timed_out: z.boolean(),
};

const processInfo = z
  .strictObject({
    id: z.int().meta({ description: "Stays the same in forks" }),
    pid: z.int().meta({ description: "Inside the guest" }),
    tag: z.string().nullable(),
    args: z.array(z.string()).meta({ description: "Long ones are cut off" }),
    cwd: z.string(),
    user: z.string(),
    terminal: z.boolean(),
    stdin_open: z.boolean().meta({ description: "Whether its stdin is open" }),
    started_at_ms: z.number().meta({ description: "Since 1970, by the guest's clock" }),
    state: z.enum(["running", "ended"]),
    exit_code: exit.exit_code.nullable(),
    signal: exit.signal,
    timed_out: exit.timed_out,
    stdout_bytes: z.int().meta({ description: "Written so far; the newest 256 KiB are kept" }),
    stderr_bytes: z.int(),
  })
  .meta({ id: "Process" });

const channel = z.enum(["stdout", "stderr"]);

const processStarted = z
  .strictObject({
    id: z.int(),
    pid: z.int(),
    tag: z.string().nullable(),
    terminal: z.boolean(),
    stdout_offset: z.int().meta({ description: "Where the output that follows begins: bytes since the start of the process" }),
    stderr_offset: z.int(),
  })
  .meta({ id: "ProcessStarted" });

const outputLost = z
  .strictObject({ channel, bytes: z.int() })
  .meta({ id: "OutputLost", description: "Output that was asked for and is no longer kept" });

const processExit = z.strictObject(exit).meta({ id: "ProcessExit" });

const output = z
  .strictObject({ offset: z.int(), text: z.string().optional(), base64: z.string().optional() })
  .meta({ id: "ProcessOutput", description: "text or base64, as asked for" });

/** The data of the events `started`, `stdout` and `stderr`, `lost`, `exit`, `error` */
const processEvent = z
  .union([processStarted, output, outputLost, processExit, problem])
  .meta({ id: "ProcessEvent", description: "The data of the events started, stdout and stderr, lost, exit, error" });

const encoding = z.enum(["utf8", "base64"]).default("utf8").meta({ description: "Of the output" });

const startQuery = z.strictObject({ encoding });

const from = z
  .union([z.literal("now"), z.coerce.number().int().min(0)])
  .optional()
  .meta({ description: "Offset to begin at, or 'now' for only what is new; without it, all that is kept" });

const outputQuery = z.strictObject({
  stdout_from: from,
  stderr_from: from,
  follow: flag.meta({ description: "false: ends after the existing output; otherwise with the process" }),
  encoding,
});

const stdinQuery = z.strictObject({
  close: flag.meta({ description: "Closes stdin after the body; a terminal gets its end-of-file key" }),
});

const signal = z.enum(SIGNALS);
const scope = z.enum(["group", "process"]).default("group").meta({ description: "The whole process group, or the process alone" });

const signalProcess = z.strictObject({ signal, scope }).meta({ id: "SignalProcess" });

/** First message of the client on a WebSocket */
export const socketOpening = z.union([
  z.strictObject({ start: startProcess }),
  z.strictObject({ attach: z.strictObject({ process: name, stdout_from: from, stderr_from: from }) }),
]);

/** Later messages of the client, beside the bytes for stdin */
export const socketMessage = z.union([
  z.strictObject({ close_stdin: z.literal(true) }),
  z.strictObject({ signal, scope }),
  z.strictObject({ resize: terminalSize }),
]);

const one = z.strictObject({ id: sandboxId, process: name.meta({ description: "Id or tag of a process" }) });

export const processRoutes = {
  startProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes",
    scope: "exec",
    summary: "Starts a process that survives disconnects; with Accept: text/event-stream its output follows at once",
    params: bySandbox,
    query: startQuery,
    body: startProcess,
    responses: { 200: "events", 201: processInfo },
    events: processEvent,
  },
  listProcesses: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes",
    scope: "exec",
    summary: "Lists running processes and the newest 64 that have ended",
    params: bySandbox,
    responses: { 200: z.array(processInfo) },
  },
  streamProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/stream",
    scope: "exec",
    summary: "Starts or attaches to a process over a WebSocket",
    params: bySandbox,
    responses: { 101: "upgrade" },
  },
  getProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/:process",
    scope: "exec",
    summary: "One process",
    params: one,
    responses: { 200: processInfo },
  },
  killProcess: {
    method: "DELETE",
    path: "/v1/sandboxes/:id/processes/:process",
    scope: "exec",
    summary: "Kills a process and its group; answers when it has ended",
    params: one,
    responses: { 204: "empty" },
  },
  watchProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/:process/output",
    scope: "exec",
    summary: "Output of a process from any position that is kept, as server-sent events",
    params: one,
    query: outputQuery,
    responses: { 200: "events" },
    events: processEvent,
  },
  writeStdin: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/stdin",
    scope: "exec",
    summary: "Streams the body to the stdin of a process",
    params: one,
    query: stdinQuery,
    body: "bytes",
    responses: { 204: "empty" },
  },
  signalProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/signal",
    scope: "exec",
    summary: "Sends a signal to a process",
    params: one,
    body: signalProcess,
    responses: { 204: "empty" },
  },
  resizeProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/resize",
    scope: "exec",
    summary: "Resizes the terminal of a process",
    params: one,
    body: terminalSize,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

export type StartProcess = z.infer<typeof startProcess>;
export type ProcessInfo = z.infer<typeof processInfo>;
export type ProcessStarted = z.infer<typeof processStarted>;
export type ProcessExit = z.infer<typeof processExit>;
export type OutputLost = z.infer<typeof outputLost>;
export type OutputFrom = { stdout_from?: number | "now" | undefined; stderr_from?: number | "now" | undefined };
export type OutputQuery = z.infer<typeof outputQuery>;
export type TerminalSize = z.infer<typeof terminalSize>;
export type SignalProcess = z.infer<typeof signalProcess>;
export type SocketMessage = z.infer<typeof socketMessage>;
