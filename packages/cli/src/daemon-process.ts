// Starts a daemon of one's own in the background, and waits until it takes requests.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, open, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { failure } from "./errors.ts";
import { becomeProgram } from "./exit.ts";

import type { ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import type { Paths } from "./paths.ts";

const START_TIMEOUT_MS = 120_000;
const TAIL_LINES = 12;
/** Number of the pipe on which the daemon says that it is ready, or why not */
const READY_FD = 3;

export type StartOptions = {
  args: string[];
  paths: Paths;
  signal: AbortSignal;
  /** the daemon's program; tests have their own */
  program?: string | undefined;
};

type Ready = { ready?: boolean; error?: string; code?: string; hint?: string };

/** Resolves when it is ready. Rejects with its own error, DAEMON_RUNNING among them */
export async function startDaemon(opts: StartOptions): Promise<{ pid: number }> {
  await mkdir(opts.paths.run, { recursive: true, mode: 0o700 });
  await using log = await open(opts.paths.log, "a", 0o600);
  const { size: logStart } = await log.stat();
  opts.signal.throwIfAborted();
  const child = spawn(process.execPath, daemonArgs(opts.args, opts.program), {
    detached: true,
    env: { ...daemonEnv(), FORKD_READY_FD: String(READY_FD) },
    stdio: ["ignore", log.fd, log.fd, "pipe"],
  });
  const pipe = child.stdio[READY_FD] as Readable;
  try {
    const answer = await readyLine(child, pipe, opts.signal);
    if (answer?.ready === true && child.pid) return { pid: child.pid };
    throw await startFailure(answer, opts.paths.log, logStart);
  } catch (error) {
    child.kill();
    throw error;
  } finally {
    pipe.destroy();
    child.unref();
  }
}

/** Never returns: the daemon has this process, its terminal and its signals */
export function becomeDaemon(args: string[]): never {
  return becomeProgram(process.execPath, daemonArgs(args), daemonEnv());
}

/** What Node is called with to be the daemon. What passes through it is young garbage: looked for more often, it takes 4 to 15 MiB instead of up to 44 */
function daemonArgs(args: string[], program: string = daemonProgram()): string[] {
  return ["--disable-warning=ExperimentalWarning", "--max-semi-space-size=2", program, ...args];
}

/** How to reach another daemon, the secret for it and the login to a registry, which comes with each request, are none of this one's business */
function daemonEnv(): NodeJS.ProcessEnv {
  const { FORKD_URL: _url, FORKD_TOKEN: _token, FORKD_REGISTRY_USER: _user, FORKD_REGISTRY_PASSWORD: _password, ...env } = process.env;
  // an address with a query may be a secret, which no setting of the daemon is; commands send it with their requests
  if (env["FORKD_HUB_URL"]?.includes("?")) delete env["FORKD_HUB_URL"];
  return env;
}

function daemonProgram(): string {
  return join(dirname(fileURLToPath(import.meta.resolve("@forkd/daemon"))), "..", "bin", "forkd-daemon.mjs");
}

/** The first line on the pipe; undefined when the daemon ended without one */
async function readyLine(child: ChildProcess, pipe: Readable, signal: AbortSignal): Promise<Ready | undefined> {
  const limit = AbortSignal.timeout(START_TIMEOUT_MS);
  const cancel = new AbortController();
  const stop = AbortSignal.any([signal, limit, cancel.signal]);
  const failed = once(child, "error", { signal: stop }).then(([error]) => {
    throw failure("DAEMON_FAILED", `Cannot start the daemon: ${String(error)}`, "Run 'make setup' and try again.", error);
  });
  const line = (async () => {
    const lines = createInterface({ input: pipe, signal: stop });
    for await (const text of lines) return parseReady(text);
    return undefined;
  })();
  const aborted = new Promise<never>((_, reject) => {
    stop.addEventListener("abort", () => reject(stop.reason as Error), { once: true });
  });
  try {
    return await Promise.race([line, failed, aborted]);
  } catch (error) {
    if (limit.aborted)
      throw failure("DAEMON_FAILED", `The daemon was not ready after ${START_TIMEOUT_MS / 1000} s.`, "Its log says why.", error);
    throw error;
  } finally {
    // the losers of the race end with an AbortError that nobody waits for
    for (const loser of [line, failed, aborted]) loser.catch(() => {});
    cancel.abort();
  }
}

function parseReady(text: string): Ready {
  try {
    return JSON.parse(text) as Ready;
  } catch {
    return { error: `The daemon said ${JSON.stringify(text)} instead of being ready` };
  }
}

async function startFailure(answer: Ready | undefined, log: string, logStart: number): Promise<Error> {
  if (answer?.error) return failure(answer.code ?? "DAEMON_FAILED", answer.error, answer.hint ?? `Its log is ${log}.`);
  const written = (await readFile(log)).subarray(logStart).toString().trim();
  const tail = written.split("\n").slice(-TAIL_LINES).join("\n");
  return failure(
    "DAEMON_FAILED",
    `The daemon did not start: ${tail ? `it wrote\n${tail}` : "it wrote nothing"}`,
    `Its log is ${log}; 'forkd doctor' checks the host.`,
  );
}
