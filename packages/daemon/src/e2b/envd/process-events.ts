// What a process does, as E2B's streams tell it.

import { DeadlineError } from "./connect.ts";
import type { ProcessExit } from "../../api/process.ts";
import type { WatchedProcess } from "../../manager/processes.ts";

/** Clients were promised no larger ones */
const MAX_PIECE = 32 * 1024;

/** As Go's runtime calls them, whose words clients compare with */
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

export function endOf({ exit_code: code, signal }: ProcessExit): object {
  if (signal !== null) {
    const status = `signal: ${SIGNAL_WORDS[signal] ?? signal}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${code}`;
  return { exitCode: code, exited: true, status, ...(code === 0 ? {} : { error: status }) };
}
