// Starts this user's daemon in the background, and waits until it accepts requests.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { makeFolder } from "@forkd/runtime/paths";
import { failure } from "../errors.ts";
import { becomeProgram } from "../exit.ts";

import type { ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import type { Paths } from "./paths.ts";

const START_TIMEOUT_MS = 120_000;
const TAIL_LINES = 12;
/** Descriptor of the pipe on which the daemon reports that it is ready, or its error */
const READY_FD = 3;

export type StartOptions = {
  args: string[];
  paths: Paths;
  signal: AbortSignal;
  /** the daemon's program; tests use another one */
  program?: string | undefined;
};

type Ready = { ready?: boolean; error?: string; code?: string; hint?: string };

/** Resolves when the daemon is ready. Rejects with its error, DAEMON_RUNNING among them */
export async function startDaemon(opts: StartOptions): Promise<{ pid: number }> {
  // first, because the log is in this folder
  await makeFolder(opts.paths.run, "FORKD_RUN");
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

/** Never returns: the daemon replaces this process and keeps its terminal and signals */
export function becomeDaemon(args: string[]): never {
  return becomeProgram(process.execPath, daemonArgs(args), daemonEnv());
}

/** Node's options for the daemon. Requests leave short-lived garbage; more frequent collections keep it at 4 to 15 MiB in place of up to 44 */
function daemonArgs(args: string[], program: string = daemonProgram()): string[] {
  return ["--disable-warning=ExperimentalWarning", "--max-semi-space-size=2", program, ...args];
}

/** Variables of clients: address and token of another daemon, and the login to a registry, which is sent with each request */
function daemonEnv(): NodeJS.ProcessEnv {
  const { FORKD_URL: _url, FORKD_TOKEN: _token, FORKD_REGISTRY_USER: _user, FORKD_REGISTRY_PASSWORD: _password, ...env } = process.env;
  // an address with a query may contain a secret, and is not a setting of the daemon; commands send it with their requests
  if (env["FORKD_HUB_URL"]?.includes("?")) delete env["FORKD_HUB_URL"];
  return env;
}

function daemonProgram(): string {
  return join(dirname(fileURLToPath(import.meta.resolve("@forkd/daemon"))), "..", "bin", "forkd-daemon.mjs");
}

/** The first line from the pipe; undefined when the daemon ended without one */
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
    // the other promises of the race reject with an AbortError
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
