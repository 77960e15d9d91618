// Runs command lines: in a thread, or as a process.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import { Worker } from "node:worker_threads";
import { patience } from "../../../tests/helpers/patience.ts";

import type { ChildProcessWithoutNullStreams } from "node:child_process";

export const FORKD: string = resolve(import.meta.dirname, "..", "..", "..", "forkd");

export type Result = { code: number; stdout: string; stderr: string };
/** With standard output as raw bytes */
export type BinaryResult = Result & { bytes: Buffer };
export type Started = {
  child: ChildProcessWithoutNullStreams;
  output: () => string;
  closed: Promise<[code: number | null, signal: NodeJS.Signals | null]>;
};
/** Messages to and from the thread */
export type Asked = { args: string[]; env: NodeJS.ProcessEnv; stdin: string | Uint8Array };
export type Ended = { code: number; stdout: Uint8Array; stderr: Uint8Array };

let thread: Worker | undefined;
/** Calls are queued: the thread has one environment and one standard output */
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a call in a thread: milliseconds in place of 150 ms for a process. Never throws for a failed command: the exit code is
 * part of the result. Tests of signals, HOME, the umask or a terminal need `forkdProcess`.
 */
export async function forkd(args: string[], env: Record<string, string> = {}, stdin: string | Uint8Array = ""): Promise<Result> {
  const { bytes: _bytes, ...result } = await forkdBinary(args, env, stdin);
  return result;
}

/** The same for output that is not text */
export async function forkdBinary(
  args: string[],
  env: Record<string, string> = {},
  stdin: string | Uint8Array = "",
): Promise<BinaryResult> {
  // homedir() reads the environment of the process, also in a thread: the command would write to the user's files.
  assert.ok(env["HOME"] === undefined, "a command with another HOME needs forkdProcess");
  const turn = last;
  const { promise, resolve: done } = Promise.withResolvers<void>();
  last = promise;
  await turn;
  try {
    const { code, stdout, stderr } = await inThread({ args, env: envOf(env), stdin });
    const bytes = Buffer.from(stdout);
    return { code, stdout: bytes.toString(), bytes, stderr: Buffer.from(stderr).toString() };
  } finally {
    done();
  }
}

/** The real program, in a process */
export async function forkdProcess(args: string[], env: Record<string, string> = {}, stdin?: string | Uint8Array): Promise<BinaryResult> {
  const child = spawn(FORKD, args, {
    env: envOf(env),
    stdio: [stdin === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    timeout: patience(),
  });
  child.stdin?.end(stdin);
  const [bytes, stderr, [code]] = await Promise.all([
    buffer(child.stdout as NonNullable<typeof child.stdout>),
    buffer(child.stderr as NonNullable<typeof child.stderr>),
    once(child, "close") as Promise<[number | null]>,
  ]);
  return { code: code ?? -1, stdout: bytes.toString(), bytes, stderr: stderr.toString() };
}

/** The real program while it runs; `output` is the output so far, of both streams */
export function startForkd(args: string[], env: Record<string, string>): Started {
  const child = spawn(FORKD, args, { env: envOf(env), stdio: ["pipe", "pipe", "pipe"], timeout: patience() });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
  return { child, output: () => output, closed: once(child, "close") as Started["closed"] };
}

export async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function inThread(asked: Asked): Promise<Ended> {
  thread ??= new Worker(join(import.meta.dirname, "fixtures", "command-thread.ts"), {
    execArgv: ["--disable-warning=ExperimentalWarning"],
  });
  const late = AbortSignal.timeout(patience());
  // Keeps the test process alive only while a call runs.
  thread.ref();
  try {
    const answer = once(thread, "message", { signal: late });
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread is not a window
    thread.postMessage(asked);
    const [ended] = (await answer) as [Ended];
    return ended;
  } catch (error) {
    await thread.terminate();
    thread = undefined;
    throw new Error(`forkd ${asked.args.join(" ")} did not exit by itself`, { cause: error });
  } finally {
    thread?.unref();
  }
}

/** The environment of the test run may name a daemon */
function envOf(env: Record<string, string>): NodeJS.ProcessEnv {
  const { FORKD_URL: _url, FORKD_TOKEN: _token, COLUMNS: _columns, ...own } = process.env;
  return { ...own, NO_COLOR: "1", FORKD_NO_AUTOSTART: "1", ...env };
}
