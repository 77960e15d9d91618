// One program in a sandbox, for exec and run: streams input and output, returns the program's exit code.

import { buffer } from "node:stream/consumers";
import { SandboxProcesses } from "forkd";
import { usageError } from "../errors.ts";
import { follow } from "../terminal/live.ts";
import { printJson } from "../terminal/output.ts";
import { workingOnTerminal } from "../terminal/progress.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";

import type { Controller, ProcessFields } from "forkd";
import type { Cli } from "../cli.ts";

const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** Limit of the API for output in one answer; without --json output is streamed without a limit */
const DAY_SECS = 24 * 3600;

export type ProgramOptions = {
  timeoutSecs?: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  interactive?: boolean;
  tty?: boolean;
  tag?: string;
};

/** Resolves with the exit code */
export async function runProgram(cli: Cli, forkd: Controller, id: string, args: string[], opts: ProgramOptions): Promise<number> {
  if (cli.json) return runForJson(cli, forkd, id, args, opts);
  const processes = new SandboxProcesses(forkd, id);
  const live = await processes.start(args, { ...fieldsOf(opts), signal: cli.signal });
  return follow(live, {
    feeds: opts.interactive === true,
    timeoutSecs: opts.timeoutSecs,
    kill: async () => processes.kill(live.id),
    again: ({ id: process }) => `forkd attach ${id} ${process}`,
  });
}

/** Options of the daemon for a streamed program */
export function fieldsOf(opts: ProgramOptions): ProcessFields {
  const { env, cwd, user, tag, timeoutSecs, interactive, tty } = opts;
  return { env, cwd, user, tag, timeoutSecs, stdin: interactive === true, terminal: tty ? terminalSize() : undefined };
}

/** A terminal needs interactive input, and one JSON value cannot hold a screen */
export function refuseWithoutTerminal(cli: Cli, opts: ProgramOptions): void {
  if (opts.tty && cli.json) throw usageError("--tty and --json exclude each other");
  if (opts.tty && opts.interactive && !process.stdin.isTTY) throw usageError("-t with -i needs a terminal as standard input; leave -t out");
}

async function runForJson(cli: Cli, forkd: Controller, id: string, args: string[], opts: ProgramOptions): Promise<number> {
  const { env, cwd, user, timeoutSecs = DAY_SECS } = opts;
  const stdin = opts.interactive ? (await buffer(process.stdin)).toString() : undefined;
  const result = await workingOnTerminal(`Running ${args[0] ?? ""}`, async () =>
    forkd.execCommand(id, args, { timeoutSecs, stdin, env, cwd, user, maxOutputBytes: MAX_OUTPUT_BYTES, signal: cli.signal }),
  );
  printJson(result);
  return result.exit_code;
}
