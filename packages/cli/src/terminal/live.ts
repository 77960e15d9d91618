// Connects a process to this command's terminal or pipes: input, output, signals, size, exit code.

import { codeOf } from "../errors.ts";
import { signalExitCode, takeSignals } from "../exit.ts";
import { isBroken, printNote, writeBytes } from "./output.ts";
import { LeaveKeys, RawTerminal } from "./raw-terminal.ts";

import type { Process } from "forkd";

/** A program may end before it has read its input */
const NO_MORE_INPUT = new Set(["STDIN_CLOSED", "PROCESS_ENDED", "NOT_FOUND", "CANCELLED"]);
const EXIT_PIPE = 141;
const EXIT_TIMEOUT = 124;
/** How long this command, when it ends, waits for the end of the program */
const LEAVE_WITHIN_MS = 3000;

export type FollowOptions = {
  /** whether standard input is forwarded */
  feeds: boolean;
  /** kills the process group */
  kill: () => Promise<void>;
  /** how to attach again */
  again: (live: Process) => string;
  /** time-out of the program */
  timeoutSecs?: number | undefined;
  /** Ctrl-C detaches, because another command started the process */
  leavesOnInterrupt?: boolean;
};

/** Resolves with the exit code, when the process has ended or this command has detached */
export async function follow(live: Process, opts: FollowOptions): Promise<number> {
  const { ending, leave, onSignal } = watchSignals(live, opts);
  using signals = new DisposableStack();
  signals.use(takeSignals(onSignal));
  {
    using terminal = new DisposableStack();
    const isRaw = live.terminal && opts.feeds && process.stdin.isTTY;
    if (isRaw) terminal.use(new RawTerminal((size) => ignoring(live.resize(size))));
    const keys = isRaw ? new LeaveKeys((held) => ignoring(live.write(held))) : undefined;
    if (opts.feeds) void feed(live, keys, () => leave(0));
    try {
      await passOutput(live);
    } finally {
      process.stdin.pause();
    }
  }
  // as in a local pipeline: a program whose output is not read is ended
  if (isBroken("stdout")) {
    await opts.kill();
    return EXIT_PIPE;
  }
  if (ending.isLeft) {
    printNote(`\nLeft process ${live.id} running. To attach again: ${opts.again(live)}`);
    return ending.code ?? 0;
  }
  const { exit_code: code, timed_out: timedOut } = await live.wait();
  if (timedOut) printNote(`Note: it was ended after ${opts.timeoutSecs ?? "its number of"} s; raise --timeout-secs.`);
  return ending.code ?? (timedOut ? EXIT_TIMEOUT : code);
}

async function passOutput(live: Process): Promise<void> {
  for await (const event of live.output()) {
    if (event.type === "lost") printNote(`Note: ${event.bytes} bytes of ${event.channel} were dropped before they were read.`);
    else await writeBytes(event.type, event.bytes);
    if (isBroken("stdout")) return;
  }
}

type Ending = { isLeft: boolean; /** why this command ended, if not because of the process */ code: number | undefined };

/** The first Ctrl-C is sent to the program, as if it ran locally; the second kills it. A command that is terminated kills its program */
function watchSignals(
  live: Process,
  opts: FollowOptions,
): { ending: Ending; leave: (code: number) => void; onSignal: (name: NodeJS.Signals) => void } {
  const ending: Ending = { isLeft: false, code: undefined };
  let interrupts = 0;
  const leave = (code: number): void => {
    ending.code ??= code;
    ending.isLeft = true;
    live.detach();
  };
  const onSignal = (name: NodeJS.Signals): void => {
    const code = signalExitCode(name);
    if (opts.leavesOnInterrupt) return leave(code);
    if (name === "SIGINT") {
      ignoring(++interrupts === 1 ? live.kill("SIGINT") : opts.kill());
      return;
    }
    ending.code = code;
    ignoring(live.terminal ? live.kill("SIGHUP") : opts.kill());
    setTimeout(() => leave(code), LEAVE_WITHIN_MS).unref();
  };
  return { ending, leave, onSignal };
}

async function feed(live: Process, keys: LeaveKeys | undefined, leave: () => void): Promise<void> {
  try {
    for await (const chunk of process.stdin) {
      const typed = chunk as Uint8Array;
      const bytes = keys ? keys.take(typed) : typed;
      if (!bytes) return leave();
      if (bytes.length > 0) await live.write(bytes);
    }
    await live.closeStdin();
  } catch (error) {
    if (NO_MORE_INPUT.has(codeOf(error) ?? "")) return;
    printNote(`Note: standard input is no longer forwarded: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The process has ended: it cannot be signalled or resized, and its end is reported elsewhere */
function ignoring(work: Promise<void>): void {
  work.catch((error: unknown) => {
    if (!NO_MORE_INPUT.has(codeOf(error) ?? "")) printNote(`Note: ${error instanceof Error ? error.message : String(error)}`);
  });
}
