// QEMU's machine protocol: one JSON object per line over a Unix socket.

import { connect, type Socket } from "node:net";
import { ForkdError } from "../../errors.ts";

const MAX_LINE = 1024 * 1024;

type Reply = { return?: unknown; error?: { class: string; desc: string }; id?: number; event?: string; QMP?: unknown };

export class Qmp {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #greeting = Promise.withResolvers<void>();
  #buffer = "";
  #nextId = 1;
  #lost: ForkdError | undefined;
  #ready: Promise<void> | undefined;

  constructor(path: string) {
    this.#greeting.promise.catch(() => undefined); // ready() awaits it
    this.#socket = connect(path);
    this.#socket.setEncoding("utf8");
    this.#socket.on("data", (text: string) => this.#receive(text));
    this.#socket.on("error", (error) => this.#lose(error.message));
    this.#socket.on("close", () => this.#lose("the channel was closed"));
  }

  /** Resolves when commands can be sent */
  async ready(): Promise<void> {
    this.#ready ??= this.#greeting.promise.then(async () => void (await this.#request("qmp_capabilities")));
    return this.#ready;
  }

  async execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    await this.ready();
    return this.#request(command, args);
  }

  close(): void {
    this.#lose("the host closed the channel");
  }

  async #request(command: string, args?: Record<string, unknown>): Promise<unknown> {
    if (this.#lost) throw this.#lost;
    const id = this.#nextId++;
    const reply = Promise.withResolvers<unknown>();
    this.#waiting.set(id, reply);
    this.#socket.write(`${JSON.stringify({ execute: command, ...(args ? { arguments: args } : {}), id })}\n`);
    return reply.promise;
  }

  #receive(text: string): void {
    const lines = (this.#buffer + text).split("\n");
    this.#buffer = lines.pop() ?? "";
    if (this.#buffer.length > MAX_LINE) return this.#lose("it sent a line over the limit");
    for (const line of lines) {
      if (line.trim() !== "") this.#handle(line);
    }
  }

  #handle(line: string): void {
    const reply = parseReply(line);
    if (!reply) return this.#lose("it sent a line that is not a JSON object");
    if (reply.QMP !== undefined) return this.#greeting.resolve();
    if (reply.id === undefined) return;
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.error) waiting?.reject(new ForkdError("VMM_FAILED", `QEMU refused a command: ${reply.error.desc}.`));
    else waiting?.resolve(reply.return);
  }

  #lose(why: string): void {
    if (this.#lost) return;
    this.#lost = new ForkdError("VMM_EXITED", `QEMU's control channel is gone: ${why}.`);
    this.#socket.destroy();
    this.#greeting.reject(this.#lost);
    for (const waiting of this.#waiting.values()) waiting.reject(this.#lost);
    this.#waiting.clear();
  }
}

function parseReply(line: string): Reply | undefined {
  try {
    const reply: unknown = JSON.parse(line);
    return typeof reply === "object" && reply !== null ? reply : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
