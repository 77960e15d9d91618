// QMP client: one JSON object per line over a Unix socket. All input is validated, because QEMU may be compromised.

import { connect, type Socket } from "node:net";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { Pace } from "../../util/pace.ts";

const MAX_LINE = 1024 * 1024;
/** Limit of unanswered commands: periodic queries to an unresponsive VMM would accumulate without it */
const MAX_WAITING = 256;
/**
 * Rate limit of input: QEMU sends a few lines per command and some events, but a compromised VMM could keep the daemon
 * busy
 */
const LINES_PER_MS = 16;
const MAX_LINES_AT_ONCE = 512;
/**
 * Delay before a new attempt: QEMU's listen backlog is 1, and while a slow VMM has not accepted, connect fails with
 * EAGAIN
 */
const CONNECT_AGAIN_MS = 100;

/** Default time limit of a command, including the wait for the greeting */
const ANSWER_WITHIN_MS = 30_000;
const WITHIN_MS: { readonly [command: string]: number | undefined } = {
  stop: 15_000,
  cont: 15_000,
  "query-status": 15_000,
  "ringbuf-read": 5000,
  // these read or write files, on a disk of unknown speed
  "xen-save-devices-state": 120_000,
  "blockdev-reopen": 120_000,
};

const lineSchema = z.object({
  return: z.unknown().optional(),
  error: z.object({ desc: z.string() }).optional(),
  id: z.number().optional(),
  event: z.string().optional(),
  data: z.unknown().optional(),
  QMP: z.unknown().optional(),
});
type Reply = z.output<typeof lineSchema>;

export type QmpOptions = {
  /** time limit of commands that have none of their own */
  withinMs?: number;
  /** called with QEMU's events */
  onEvent?: (name: string, data: unknown) => void;
};

export class Qmp {
  #socket: Socket;
  #connecting: NodeJS.Timeout | undefined;
  readonly #withinMs: number;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #greeting = Promise.withResolvers<void>();
  /** parts of an incomplete line */
  #pieces: string[] = [];
  #length = 0;
  #nextId = 1;
  #lost: ForkdError | undefined;
  #ready: Promise<void> | undefined;

  readonly #onEvent: (name: string, data: unknown) => void;
  readonly #closed = Promise.withResolvers<void>();
  readonly #pace = new Pace({ perMs: LINES_PER_MS, burst: MAX_LINES_AT_ONCE, hold: () => this.#hold() });

  constructor(path: string, opts: QmpOptions = {}) {
    this.#withinMs = opts.withinMs ?? ANSWER_WITHIN_MS;
    this.#onEvent = opts.onEvent ?? (() => undefined);
    this.#greeting.promise.catch(() => undefined); // callers wait with a timeout
    this.#socket = this.#connect(path);
  }

  #connect(path: string): Socket {
    const socket = connect(path);
    let isFull = false;
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => this.#receive(text));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      isFull = error.code === "EAGAIN" && !this.#lost;
      if (!isFull) return this.#lose(error.message);
      this.#connecting = setTimeout(() => (this.#socket = this.#connect(path)), CONNECT_AGAIN_MS);
    });
    socket.on("close", () => {
      if (isFull && !this.#lost) return;
      this.#closed.resolve();
      this.#lose("the channel was closed");
    });
    return socket;
  }

  /** Resolves when no more input will be read */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Resolves when the channel accepts commands */
  async ready(): Promise<void> {
    await answered("with its greeting", this.#withinMs, () => this.#greeted());
  }

  /** QEMU's reply, validated; rejects with VMM_FAILED after the time limit */
  async execute<T extends z.ZodType>(
    command: string,
    schema: T,
    args?: Record<string, unknown>,
    withinMs = WITHIN_MS[command] ?? this.#withinMs,
  ): Promise<z.output<T>> {
    const reply = await answered(command, withinMs, async (isLate) => {
      await this.#greeted();
      // a command whose caller has timed out must not be sent later
      return isLate() ? undefined : this.#request(command, args);
    });
    const checked = schema.safeParse(reply);
    if (!checked.success) throw new ForkdError("VMM_FAILED", `QEMU's answer to ${command} is not what it should be.`);
    return checked.data;
  }

  close(): void {
    this.#lose("the host closed the channel");
  }

  async #greeted(): Promise<void> {
    this.#ready ??= this.#greeting.promise.then(async () => void (await this.#request("qmp_capabilities")));
    return this.#ready;
  }

  async #request(command: string, args?: Record<string, unknown>): Promise<unknown> {
    if (this.#lost) throw this.#lost;
    if (this.#waiting.size >= MAX_WAITING)
      throw new ForkdError("VMM_FAILED", `QEMU has not answered the last ${MAX_WAITING} commands, and is not asked for ${command}.`);
    const id = this.#nextId++;
    const reply = Promise.withResolvers<unknown>();
    this.#waiting.set(id, reply);
    this.#socket.write(`${JSON.stringify({ execute: command, ...(args ? { arguments: args } : {}), id })}\n`);
    return reply.promise;
  }

  #receive(text: string): void {
    const lines = text.split("\n");
    const rest = lines.pop() ?? "";
    this.#pace.count(lines.length);
    for (const [at, line] of lines.entries()) {
      // ignore the lines after one that ended the channel, also those of the same read
      if (this.#lost) return;
      const whole = at === 0 ? this.#pieces.join("") + line : line;
      if (whole.length > MAX_LINE) return this.#lose("it sent a line over the limit");
      if (whole.trim() !== "") this.#handle(whole);
    }
    if (lines.length > 0) {
      this.#pieces = [];
      this.#length = 0;
    }
    this.#pieces.push(rest);
    this.#length += rest.length;
    if (this.#length > MAX_LINE) this.#lose("it sent a line over the limit");
  }

  #handle(line: string): void {
    const reply = parseReply(line);
    if (!reply) return this.#lose("it sent a line that is no message of the protocol");
    if (reply.QMP !== undefined) return this.#greeting.resolve();
    if (reply.event !== undefined) return this.#onEvent(reply.event, reply.data);
    if (reply.id === undefined) return;
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.error) waiting?.reject(refusal(reply.error.desc));
    else waiting?.resolve(reply.return);
  }

  #hold(): Disposable {
    this.#socket.pause();
    return { [Symbol.dispose]: () => void this.#socket.resume() };
  }

  #lose(why: string): void {
    if (this.#lost) return;
    this.#pace.close();
    this.#lost = new ForkdError("VMM_EXITED", `QEMU's control channel is gone: ${why}.`);
    clearTimeout(this.#connecting);
    this.#socket.destroy();
    this.#greeting.reject(this.#lost);
    for (const waiting of this.#waiting.values()) waiting.reject(this.#lost);
    this.#waiting.clear();
  }
}

/** Result of the work, or VMM_FAILED after the time limit; `isLate` is true when the caller no longer waits */
async function answered<V>(what: string, withinMs: number, work: (isLate: () => boolean) => Promise<V>): Promise<V> {
  const late = Promise.withResolvers<never>();
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    late.reject(new ForkdError("VMM_FAILED", `QEMU did not answer ${what} within ${withinMs} ms.`));
  }, withinMs);
  try {
    return await Promise.race([work(() => isLate), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function refusal(description: string): ForkdError {
  const code = description.includes("No space left on device") ? "NO_SPACE" : "VMM_FAILED";
  return new ForkdError(code, `QEMU refused a command: ${description.slice(0, 4096)}.`);
}

function parseReply(line: string): Reply | undefined {
  try {
    return lineSchema.safeParse(JSON.parse(line)).data;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
