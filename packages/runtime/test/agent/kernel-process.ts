// A kernel as a process of the host, with its control channel.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { patience } from "../../../../tests/helpers/patience.ts";
import { COMMANDS, lineFor, type KernelRequest, type Language } from "../../src/agent/kernel/language.ts";

export type Message = {
  event: string;
  id?: number;
  count?: number;
  text?: string | null;
  json?: unknown;
  data?: Record<string, unknown>;
  omitted?: Record<string, number>;
  status?: number;
  type?: string;
  message?: string;
  traceback?: string;
  generators?: string[];
  language?: string;
  regions?: [name: string, address: number, length: number, fill: string][];
  complete?: boolean;
};

type EvalFields = Omit<Extract<KernelRequest, { op: "eval" }>, "op" | "id" | "code">;

const SEED = "ab".repeat(32);
const IN_GUEST = "/run/forkd/kernels";
const KERNELS = fileURLToPath(new URL("../../../../guest/kernels", import.meta.url));

export class KernelProcess {
  readonly process: ChildProcess;
  readonly control: Duplex;
  /** Output and control messages in the order of arrival */
  readonly seen: string[] = [];
  readonly #language: Language;
  readonly #messages: AsyncIterator<string>;
  #lastId = 0;

  constructor(language: Language) {
    this.#language = language;
    // In a shell script the repository's path is quoted, because it may contain spaces.
    const path = (word: string): string => (word.startsWith(IN_GUEST) ? KERNELS : `'${KERNELS}'`);
    const [command = "", ...args] = COMMANDS[language].map((word) => word.replaceAll(IN_GUEST, path(word)));
    const program = command === "node" ? process.execPath : command;
    // its own process group, as in a guest
    this.process = spawn(program, args, { stdio: ["ignore", "pipe", "pipe", "pipe"], detached: true });
    this.control = this.process.stdio[3] as Duplex;
    this.process.stdout?.on("data", (data: Buffer) => this.seen.push(`out:${data.toString()}`));
    this.process.stderr?.on("data", (data: Buffer) => this.seen.push(`err:${data.toString()}`));
    this.#messages = createInterface({ input: this.control })[Symbol.asyncIterator]();
  }

  async next(): Promise<Message> {
    const late = sleep(patience(), undefined, { ref: false }).then(() => assert.fail("the kernel does not answer"));
    const { value } = await Promise.race([this.#messages.next(), late]);
    const message = JSON.parse(value as string) as Message;
    this.seen.push(message.event);
    return message;
  }

  /** Waits until it accepts code */
  async ready(): Promise<Message> {
    let message = await this.next();
    if (message.event === "generators") message = await this.next();
    assert.equal(message.event, "ready");
    return message;
  }

  send(request: KernelRequest): void {
    this.control.write(`${lineFor(this.#language, request)}\n`);
  }

  start(code: string, extra: EvalFields = {}): number {
    this.send({ op: "eval", id: ++this.#lastId, code, ...extra });
    return this.#lastId;
  }

  async eval(code: string, extra: EvalFields = {}): Promise<Message> {
    const [message] = (await this.evalAll(code, extra)).slice(-1);
    assert.ok(message);
    return message;
  }

  /** With the displays from before the end */
  async evalAll(code: string, extra: EvalFields = {}): Promise<Message[]> {
    const id = this.start(code, extra);
    const messages: Message[] = [];
    for (;;) {
      const message = await this.next();
      assert.equal(message.id, id);
      messages.push(message);
      if (message.event !== "display") return messages;
    }
  }

  async reseed(id: number, seed = SEED): Promise<Message> {
    this.send({ op: "reseed", id, seed });
    return this.next();
  }

  interrupt(): void {
    assert.ok(this.process.pid);
    process.kill(-this.process.pid, "SIGINT");
    if (this.#language === "node" || this.#language === "typescript") this.send({ op: "interrupt", id: this.#lastId });
  }

  /** Everything printed since the last call */
  printed(channel: "out" | "err"): string {
    const found = this.seen.filter((entry) => entry.startsWith(`${channel}:`)).map((entry) => entry.slice(4));
    this.seen.length = 0;
    return found.join("");
  }

  async close(): Promise<number | null> {
    if (this.process.exitCode !== null) return this.process.exitCode;
    const exit = once(this.process, "exit");
    this.control.end();
    return (await exit)[0] as number | null;
  }
}
