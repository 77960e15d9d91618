// Processes in the guest: start, feed, read, signal, attach again.

import { constants } from "node:os";
import { ForkdError } from "../errors.ts";
import { signalName } from "../util/signal-name.ts";
import { Writer, type Reader } from "./codec.ts";
import { throwIfCancelled, within, type AgentConnection } from "./connection.ts";
import { CHANNEL, T } from "./protocol.ts";
import { AgentError, type AgentStream } from "./stream.ts";

const FROM_NOW = 2n ** 64n - 1n;
const FLAG_STDIN = 1;
const FLAG_CONTROL = 2;
const START_WITHIN_MS = 60_000;
/** how long after a program's time-out its end may be told: the agent itself takes 500 ms from SIGTERM to SIGKILL */
export const TIMEOUT_GRACE_MS = 5000;

export type OutputHandler = (channel: "stdout" | "stderr" | "control", bytes: Buffer) => void | Promise<void>;

export type StartOptions = {
  env?: Record<string, string> | undefined;
  cwd?: string | undefined;
  user?: string | undefined;
  /** SIGTERM, then SIGKILL, to the whole process group after so many `ms`; 0: never */
  timeoutMs?: number | undefined;
  /** name by which the process can be attached again */
  tag?: string | undefined;
  stdin?: "open" | "null" | undefined;
  control?: boolean | undefined;
  onOutput?: OutputHandler | undefined;
  signal?: AbortSignal | undefined;
};

export type ExitStatus = {
  /** exit code; null when a signal ended the process */
  code: number | null;
  signal: string | null;
  timedOut: boolean;
};

export type ProcessInfo = { id: bigint; pid: number; tag: string; argv: string[]; running: boolean; code: number; signal: number };

export class GuestProcess {
  readonly #stream: AgentStream;
  readonly id: bigint;
  readonly pid: number;

  private constructor(stream: AgentStream, started: Reader) {
    this.#stream = stream;
    this.id = started.u64();
    this.pid = started.u32();
  }

  /** Starts a program; rejects with EXEC_FAILED when the guest cannot */
  static async start(agent: AgentConnection, argv: readonly string[], opts: StartOptions = {}): Promise<GuestProcess> {
    if (argv.length === 0) throw new ForkdError("BAD_REQUEST", "Cannot start a process: argv is empty.");
    throwIfCancelled(opts.signal);
    const flags = (opts.stdin === "open" ? FLAG_STDIN : 0) | (opts.control ? FLAG_CONTROL : 0);
    const payload = new Writer()
      .u8(flags)
      .u64(BigInt(Math.ceil(opts.timeoutMs ?? 0)))
      .str(opts.tag ?? "")
      .list(argv, (writer, arg) => void writer.str(arg))
      .map(opts.env ?? {})
      .str(opts.cwd ?? "")
      .str(opts.user ?? "")
      .done();
    const stream = agent.open(T.EXEC, payload, outputTo(opts.onOutput));
    const withinMs = opts.timeoutMs ? Math.min(START_WITHIN_MS, opts.timeoutMs + TIMEOUT_GRACE_MS) : START_WITHIN_MS;
    return GuestProcess.#wait(stream, `Cannot start ${JSON.stringify(argv[0])} in the guest`, {
      withinMs,
      signal: opts.signal,
      // it may have been started all the same, and nobody would have a handle to it
      onFailure: () => stream.signal(constants.signals.SIGKILL, "group"),
    });
  }

  /** Attaches to a process that runs already, from an earlier connection or from before a fork; only new output comes */
  static attach(agent: AgentConnection, tag: string, onOutput: OutputHandler): { stream: AgentStream; process: Promise<GuestProcess> } {
    const payload = new Writer().u64(0n).str(tag).u64(FROM_NOW).u64(FROM_NOW).done();
    const stream = agent.open(T.ATTACH, payload, outputTo(onOutput));
    const process = GuestProcess.#wait(stream, `Cannot attach to ${JSON.stringify(tag)} in the guest`, { withinMs: START_WITHIN_MS });
    process.catch(() => undefined); // the caller may look at the stream first
    return { stream, process };
  }

  static async #wait(
    stream: AgentStream,
    what: string,
    opts: { withinMs: number; signal?: AbortSignal | undefined; onFailure?: () => void },
  ): Promise<GuestProcess> {
    const late = (): ForkdError => new ForkdError("AGENT_TIMEOUT", `${what}: its agent did not answer within ${opts.withinMs} ms.`);
    try {
      return new GuestProcess(stream, await within(stream.started(), opts.withinMs, opts.signal, late));
    } catch (error) {
      opts.onFailure?.();
      stream.cancel();
      if (error instanceof AgentError) throw new ForkdError("EXEC_FAILED", `${what}: ${error.message}.`, { cause: error });
      throw error;
    }
  }

  async write(bytes: Uint8Array | string): Promise<void> {
    await this.#stream.write(CHANNEL.stdin, typeof bytes === "string" ? Buffer.from(bytes) : bytes);
  }

  closeStdin(): void {
    this.#stream.eof(CHANNEL.stdin);
  }

  async writeControl(bytes: Uint8Array): Promise<void> {
    await this.#stream.write(CHANNEL.control, bytes);
  }

  kill(signal: NodeJS.Signals, scope: "process" | "group" = "group"): void {
    this.#stream.signal(constants.signals[signal], scope);
  }

  /** Leaves the process running and forgets it here */
  detach(): void {
    this.#stream.cancel();
  }

  async exited(): Promise<ExitStatus> {
    const reader = await this.#stream.result();
    const code = reader.i32();
    const signal = reader.u32();
    const timedOut = reader.u8() === 1;
    return { code: signal === 0 ? code : null, signal: signal === 0 ? null : signalName(signal), timedOut };
  }
}

export async function listProcesses(agent: AgentConnection, timeoutMs: number): Promise<ProcessInfo[]> {
  const reader = await agent.call(T.LIST, Buffer.alloc(0), { timeoutMs });
  return reader.list((item) => ({
    id: item.u64(),
    pid: item.u32(),
    tag: item.str(),
    argv: item.list((arg) => arg.str()),
    running: item.u8() === 1,
    code: item.i32(),
    signal: item.u32(),
  }));
}

const CHANNEL_NAMES = { [CHANNEL.stdout]: "stdout", [CHANNEL.stderr]: "stderr", [CHANNEL.control]: "control" } as const;

function outputTo(handler: OutputHandler | undefined): (channel: number, bytes: Buffer) => void | Promise<void> {
  return (channel, bytes) => {
    const name = CHANNEL_NAMES[channel as keyof typeof CHANNEL_NAMES];
    if (name && handler) return handler(name, bytes);
  };
}
