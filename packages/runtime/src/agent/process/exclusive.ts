// A process with one owner, such as a warm interpreter: its stream is not shared.

import { constants } from "node:os";
import { Writer } from "../../util/codec.ts";
import { throwIfCancelled } from "../../util/within.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { awaitStart, awaitStarted, execPayload, readExit, type ExitStatus, type Started, type StartOptions } from "./exec.ts";
import { CHANNEL, FROM_NOW, T } from "../wire/protocol.ts";
import type { AgentStream } from "../wire/stream.ts";

export type OutputHandler = (channel: "stdout" | "stderr" | "control", bytes: Buffer) => void | Promise<void>;

export class GuestProcess {
  readonly #stream: AgentStream;
  readonly id: number;
  readonly pid: number;

  private constructor(stream: AgentStream, started: Started) {
    this.#stream = stream;
    this.id = started.id;
    this.pid = started.pid;
  }

  /** Starts a program; rejects with EXEC_FAILED when the guest cannot */
  static async start(
    agent: AgentConnection,
    argv: readonly string[],
    opts: StartOptions & { control?: boolean; onOutput?: OutputHandler } = {},
  ): Promise<GuestProcess> {
    throwIfCancelled(opts.signal);
    const stream = agent.open(T.EXEC, execPayload(argv, opts), outputTo(opts.onOutput));
    return new GuestProcess(stream, await awaitStart(stream, argv, opts));
  }

  /** Attaches to a process of an earlier connection or from before a fork; only new output arrives */
  static attach(agent: AgentConnection, tag: string, onOutput: OutputHandler): { stream: AgentStream; process: Promise<GuestProcess> } {
    const payload = new Writer().u64(0n).str(tag).u64(FROM_NOW).u64(FROM_NOW).done();
    const stream = agent.open(T.ATTACH, payload, outputTo(onOutput));
    const started = awaitStarted(stream, `Cannot attach to ${JSON.stringify(tag)} in the guest`);
    const process = started.then((answer) => new GuestProcess(stream, answer));
    // the caller may inspect the stream first
    process.catch(() => stream.cancel());
    return { stream, process };
  }

  async writeControl(bytes: Uint8Array): Promise<void> {
    await this.#stream.write(CHANNEL.control, bytes);
  }

  kill(signal: NodeJS.Signals, scope: "process" | "group" = "group"): void {
    this.#stream.signal(constants.signals[signal], scope);
  }

  /** Detaches; the process keeps running */
  detach(): void {
    this.#stream.cancel();
  }

  async exited(): Promise<ExitStatus> {
    return readExit(await this.#stream.result());
  }
}

const CHANNEL_NAMES = { [CHANNEL.stdout]: "stdout", [CHANNEL.stderr]: "stderr", [CHANNEL.control]: "control" } as const;

function outputTo(handler: OutputHandler | undefined): (channel: number, bytes: Buffer) => void | Promise<void> {
  return (channel, bytes) => {
    const name = CHANNEL_NAMES[channel as keyof typeof CHANNEL_NAMES];
    if (name && handler) return handler(name, bytes);
  };
}
