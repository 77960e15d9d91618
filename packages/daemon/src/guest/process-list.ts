// What the agent tells of its processes.

import { CodecError, Writer, type Reader } from "./codec.ts";
import { T } from "./protocol.ts";
import type { AgentConnection } from "./connection.ts";
import type { ExitStatus } from "./program.ts";
import { signalName } from "../util/signal-name.ts";

/** A guest that tells of more is not believed */
const MOST_PROCESSES = 100_000;
/** Tags of forkd's own processes, such as the warm interpreters, have a slash */
const INTERNAL = /\//;

export type ProcessInfo = {
  id: number;
  pid: number;
  tag: string;
  argv: string[];
  cwd: string;
  user: string;
  terminal: boolean;
  /** whether stdin takes more */
  stdin: boolean;
  startedMs: number;
  /** undefined while it runs */
  exit: ExitStatus | undefined;
  /** how much it has written so far */
  stdout: number;
  stderr: number;
};

/** All processes that the agent knows, by id: those of forkd itself, or the others */
export async function listProcesses(agent: AgentConnection, timeoutMs: number, { own = false } = {}): Promise<ProcessInfo[]> {
  const all: ProcessInfo[] = [];
  for (let after = 0, more = true; more;) {
    const reader = await agent.call(T.LIST, new Writer().u64(BigInt(after)).done(), { timeoutMs });
    const page = reader.list(readProcess);
    more = reader.u8() === 1;
    for (const { id } of page) {
      if (id <= after) throw new CodecError("processes are not in order");
      after = id;
    }
    all.push(...page);
    if (all.length > MOST_PROCESSES || (more && page.length === 0)) throw new CodecError("a list of processes without an end");
  }
  return all.filter(({ tag }) => INTERNAL.test(tag) === own);
}

function readProcess(item: Reader): ProcessInfo {
  const id = item.count();
  const pid = item.u32();
  const tag = item.str();
  const argv = item.list((arg) => arg.str());
  const running = item.u8() === 1;
  const code = item.i32();
  const signal = item.u32();
  const timedOut = item.u8() === 1;
  const exit = { code: signal === 0 ? code : null, signal: signal === 0 ? null : signalName(signal), timedOut };
  return {
    id,
    pid,
    tag,
    argv,
    exit: running ? undefined : exit,
    terminal: item.u8() === 1,
    stdin: item.u8() === 1,
    startedMs: Number(item.i64()),
    cwd: item.str(),
    user: item.str(),
    stdout: item.count(),
    stderr: item.count(),
  };
}
