// Runs the real binary, as a user would.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export const FORKD: string = resolve(import.meta.dirname, "..", "..", "..", "forkd");

export type Result = { code: number; stdout: string; stderr: string };

/** Never throws for a failed command: the exit code is part of the result */
export function forkd(args: string[], env: Record<string, string> = {}): Promise<Result> {
  return new Promise((done) => {
    execFile(FORKD, args, { env: { ...process.env, NO_COLOR: "1", ...env }, timeout: 60_000 }, (error, stdout, stderr) => {
      done({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}

export async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
