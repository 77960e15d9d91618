// One program in a sandbox, as exec and run do it: bytes in, bytes out, the program's exit code.

import { buffer } from "node:stream/consumers";
import { printNote, writeBytes } from "./output.ts";
import { workingOnTerminal } from "./progress.ts";

import type { Controller, ExecResult } from "forkd";
import type { Cli } from "./cli.ts";

/** As timeout(1) has it */
const EXIT_TIMEOUT = 124;
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export type ProgramOptions = {
  timeoutSecs: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  interactive?: boolean;
};

/** Base64 on the wire, so that output that is no text survives; as text for JSON */
export async function runProgram(cli: Cli, forkd: Controller, id: string, args: string[], opts: ProgramOptions): Promise<ExecResult> {
  const encoding = cli.json ? "utf8" : "base64";
  const stdin = opts.interactive ? (await buffer(process.stdin)).toString(encoding) : undefined;
  return workingOnTerminal(`Running ${args[0] ?? ""}`, async () =>
    forkd.execCommand(id, args, {
      timeoutSecs: opts.timeoutSecs,
      stdin,
      env: opts.env,
      cwd: opts.cwd,
      user: opts.user,
      encoding,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      signal: cli.signal,
    }),
  );
}

/** Hands the output on and returns the exit code */
export async function passThrough(result: ExecResult, timeoutSecs: number): Promise<number> {
  await writeBytes("stdout", Buffer.from(result.stdout, "base64"));
  await writeBytes("stderr", Buffer.from(result.stderr, "base64"));
  if (result.truncated) printNote("Note: the output was longer than forkd keeps; the rest is lost. Write it to a file and use 'forkd cp'.");
  if (!result.timed_out) return result.exit_code;
  printNote(`Note: it was ended after ${timeoutSecs} s; raise --timeout-secs.`);
  return EXIT_TIMEOUT;
}
