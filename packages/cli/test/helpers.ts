// Runs the real binary, as a user would.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buffer } from "node:stream/consumers";

export const FORKD: string = resolve(import.meta.dirname, "..", "..", "..", "forkd");
const TIMEOUT_MS = 60_000;

export type Result = { code: number; stdout: string; stderr: string };

/** Never throws for a failed command: the exit code is part of the result */
export async function forkd(args: string[], env: Record<string, string> = {}, stdin?: string | Uint8Array): Promise<Result> {
  const { code, stdout, stderr } = await forkdBytes(args, env, stdin);
  return { code, stdout: stdout.toString(), stderr: stderr.toString() };
}

export async function forkdBytes(
  args: string[],
  env: Record<string, string> = {},
  stdin?: string | Uint8Array,
): Promise<{ code: number; stdout: Buffer; stderr: Buffer }> {
  const child = spawn(FORKD, args, {
    env: { ...cleanEnv(), NO_COLOR: "1", FORKD_NO_AUTOSTART: "1", ...env },
    stdio: [stdin === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    timeout: TIMEOUT_MS,
  });
  child.stdin?.end(stdin);
  const [stdout, stderr, [code]] = await Promise.all([
    buffer(child.stdout as NonNullable<typeof child.stdout>),
    buffer(child.stderr as NonNullable<typeof child.stderr>),
    once(child, "close") as Promise<[number | null]>,
  ]);
  return { code: code ?? -1, stdout, stderr };
}

export async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Whoever runs the tests may have a daemon of their own */
function cleanEnv(): NodeJS.ProcessEnv {
  const { FORKD_URL: _url, FORKD_TOKEN: _token, ...env } = process.env;
  return env;
}
