// Process events in the form of E2B's streams.

import { DeadlineError } from "./connect.ts";
import type { ProcessExit } from "../../api/process.ts";
import type { WatchedProcess } from "../../service/processes.ts";

/** E2B's limit of an output chunk */
const MAX_PIECE = 32 * 1024;

/** Signal names of Go's runtime, which clients compare */
const SIGNAL_WORDS: Record<string, string> = {
  SIGHUP: "hangup",
  SIGINT: "interrupt",
  SIGQUIT: "quit",
  SIGILL: "illegal instruction",
  SIGTRAP: "trace/breakpoint trap",
  SIGABRT: "aborted",
  SIGBUS: "bus error",
  SIGFPE: "floating point exception",
  SIGKILL: "killed",
  SIGUSR1: "user defined signal 1",
  SIGSEGV: "segmentation fault",
  SIGUSR2: "user defined signal 2",
  SIGPIPE: "broken pipe",
  SIGALRM: "alarm clock",
  SIGTERM: "terminated",
};

export async function* processMessages(process: WatchedProcess): AsyncGenerator<object> {
  const { pid, terminal } = process.started;
  yield { event: { start: { pid } } };
  for await (const event of process) {
    if (event.type === "exit") {
      if (event.exit.timed_out) throw new DeadlineError("The process was ended: it took longer than its timeout.");
      yield { event: { end: endOf(event.exit) } };
    } else if (event.type === "data") {
      const channel = terminal ? "pty" : event.channel;
      for (let at = 0; at < event.bytes.length; at += MAX_PIECE)
        yield { event: { data: { [channel]: event.bytes.subarray(at, at + MAX_PIECE).toString("base64") } } };
    }
  }
}

export function endOf(exit: ProcessExit): object {
  const { exit_code: code, signal } = exit;
  const status = statusOf(exit);
  if (signal !== null) return { exitCode: -1, exited: false, status, error: status };
  return { exitCode: code, exited: true, status, ...(code === 0 ? {} : { error: status }) };
}

export function statusOf({ exit_code: code, signal }: ProcessExit): string {
  return signal === null ? `exit status ${code}` : `signal: ${SIGNAL_WORDS[signal] ?? signal}`;
}
