// The agent's list of processes.

import { CodecError, Writer, type Reader } from "../../util/codec.ts";
import { T } from "../wire/protocol.ts";
import type { AgentConnection } from "../wire/connection.ts";
import type { ExitStatus } from "./exec.ts";
import { signalName } from "../../util/signal-name.ts";

/** A longer list is refused */
const MOST_PROCESSES = 100_000;
/** For all parts of a list together: each part may have 64 KiB of names for one process */
const MOST_BYTES = 16 * 1024 * 1024;
/** Length at which the agent truncates an argv */
const MOST_ARGS = 64;
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
  /** whether stdin is open */
  stdin: boolean;
  startedMs: number;
  /** undefined while it is running */
  exit: ExitStatus | undefined;
  /** bytes written so far */
  stdout: number;
  stderr: number;
};

/** All processes of the agent by id: forkd's own, or the others */
export async function listProcesses(agent: AgentConnection, timeoutMs: number, { own = false } = {}): Promise<ProcessInfo[]> {
  const all: ProcessInfo[] = [];
  let bytes = 0;
  for (let after = 0, more = true; more;) {
    const reader = await agent.call(T.LIST, new Writer().u64(BigInt(after)).done(), { timeoutMs });
    bytes += reader.size;
    const page = reader.list(readProcess);
    more = reader.u8() === 1;
    for (const { id } of page) {
      if (id <= after) throw new CodecError("processes are not in order");
      after = id;
    }
    all.push(...page);
    if (all.length > MOST_PROCESSES || bytes > MOST_BYTES || (more && page.length === 0))
      throw new CodecError("a list of processes without an end");
  }
  return all.filter(({ tag }) => INTERNAL.test(tag) === own);
}

function readProcess(item: Reader): ProcessInfo {
  const id = item.count();
  const pid = item.u32();
  const tag = item.str();
  const argv = item.list((arg) => arg.str(), MOST_ARGS);
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
