// Runs one host command to its end: an argument list, never a shell, in its own process group, which is ended with the wait.

import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "../errors.ts";

const STDERR_TAIL_BYTES = 8192;
const STDOUT_LIMIT_BYTES = 64 * 1024 * 1024;
const KILL_GRACE_MS = 3000;

/** Debian package that holds each tool forkd runs */
const APT_PACKAGE: Record<string, string> = {
  "apt-cache": "apt",
  "apt-config": "apt",
  "apt-get": "apt",
  "dpkg-deb": "dpkg",
  fallocate: "util-linux",
  lz4: "lz4",
  "mkfs.ext4": "e2fsprogs",
  mmdebstrap: "mmdebstrap",
  newuidmap: "uidmap",
  sqfstar: "squashfs-tools",
  unshare: "util-linux",
  unsquashfs: "squashfs-tools",
  xz: "xz-utils",
  zstd: "zstd",
};

export type RunOpts = {
  signal?: AbortSignal | undefined;
  /** ends the command after this many `ms` */
  timeoutMs?: number;
  /** time between SIGTERM and SIGKILL, in `ms` */
  graceMs?: number;
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** name in errors; default: the program */
  name?: string;
  /** called with each piece of stderr */
  onStderr?: (text: string) => void;
};

export type RunResult = { stdout: string; stderrTail: string };

/** A running command; the caller reads its standard output and writes its standard input */
export type PipedCommand = {
  stdin: Writable;
  stdout: Readable;
  /** settles when the process has ended: rejects with HOST_COMMAND_FAILED, HOST_TOOL_MISSING or CANCELLED */
  done: Promise<{ stderrTail: string }>;
  /** sends TERM to the process group, then KILL; `done` settles afterwards */
  kill(): void;
};

/** Runs a command without input and returns its output */
export async function run(argv: readonly string[], opts: RunOpts = {}): Promise<RunResult> {
  const command = startPiped(argv, opts);
  command.stdin.end();
  const chunks: Buffer[] = [];
  let size = 0;
  command.stdout.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size <= STDOUT_LIMIT_BYTES) chunks.push(chunk);
    else command.kill();
  });
  const { stderrTail } = await command.done;
  return { stdout: Buffer.concat(chunks).toString("utf8"), stderrTail };
}

/** Starts a command for a pipeline; the caller must read `stdout`, end `stdin` and await `done` */
export function startPiped(argv: readonly string[], opts: RunOpts = {}): PipedCommand {
  const [program, ...args] = argv;
  const file = opts.name ?? program;
  if (program === undefined || file === undefined) throw new ForkdError("BAD_REQUEST", "Cannot run a command: it has no arguments.");
  if (opts.signal?.aborted) throw new ForkdError("CANCELLED", `${file} was not started: cancelled.`);
  const child = spawn(program, args, {
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
    cwd: opts.cwd,
    env: opts.env ?? process.env,
  });

  let tail = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    tail = (tail + text).slice(-STDERR_TAIL_BYTES);
    opts.onStderr?.(text);
  });
  // `done` reports the exit status, which is the reason for a broken pipe.
  child.stdin.on("error", () => undefined);

  let ended = false;
  let stopReason: "signal" | "timeout" | "kill" | undefined;
  const stop = (reason: "signal" | "timeout" | "kill"): void => {
    if (ended || stopReason) return;
    stopReason = reason;
    void killGroup(child.pid, opts.graceMs ?? KILL_GRACE_MS, () => ended);
  };
  const onAbort = (): void => stop("signal");
  opts.signal?.addEventListener("abort", onAbort, { once: true });
  const timer = opts.timeoutMs === undefined ? undefined : setTimeout(() => stop("timeout"), opts.timeoutMs);

  const done = new Promise<{ stderrTail: string }>((resolve, reject) => {
    const finish = (): void => {
      ended = true;
      clearTimeout(timer);
      opts.signal?.removeEventListener("abort", onAbort);
    };
    child.once("error", (error: NodeJS.ErrnoException) => {
      finish();
      reject(error.code === "ENOENT" ? toolMissing(file) : commandFailed(file, messageOf(error), tail));
    });
    child.once("close", (code, signal) => {
      if (ended) return;
      finish();
      if (stopReason === "signal") reject(new ForkdError("CANCELLED", `${file} was stopped: cancelled.`));
      else if (stopReason === "timeout") reject(commandFailed(file, `it did not end within ${opts.timeoutMs} ms`, tail));
      else if (code !== 0) reject(commandFailed(file, signal ? `ended by ${signal}` : `exit status ${code}`, tail));
      else resolve({ stderrTail: tail });
    });
  });
  // When the caller fails before it awaits `done`, a rejection must not end this process as unhandled.
  done.catch(() => undefined);
  return { stdin: child.stdin, stdout: child.stdout, done, kill: () => stop("kill") };
}

async function killGroup(pid: number | undefined, graceMs: number, ended: () => boolean): Promise<void> {
  if (pid === undefined) return;
  signalGroup(pid, "SIGTERM");
  for (let waited = 0; waited < graceMs && !ended(); waited += 20) await sleep(20);
  if (!ended()) signalGroup(pid, "SIGKILL");
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function toolMissing(file: string): ForkdError {
  const pkg = APT_PACKAGE[file];
  const hint = pkg ? { hint: `Install it: sudo apt-get install ${pkg}` } : {};
  return new ForkdError("HOST_TOOL_MISSING", `Cannot run ${file}: it is not installed.`, hint);
}

function commandFailed(file: string, why: string, tail: string): ForkdError {
  const said = tail.trim();
  return new ForkdError("HOST_COMMAND_FAILED", `${file} failed: ${why}.${said ? `\n${said}` : ""}`);
}
