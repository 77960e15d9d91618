// Warm interpreters in the guest. The contract is spec/kernel-protocol.md.

import { randomBytes, randomInt } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { Writer } from "./codec.ts";
import { within, type AgentConnection } from "./connection.ts";
import { GuestProcess } from "./process.ts";
import { CHANNEL, T } from "./protocol.ts";
import type { AgentStream } from "./stream.ts";

export type Language = "python" | "node";

const COMMANDS: Record<Language, string[]> = {
  python: ["python3", "-u", "/run/forkd/kernels/python.py"],
  node: ["node", "/run/forkd/kernels/node.mjs"],
};
/** how often a timed-out eval is interrupted, and for how long in all */
const INTERRUPT_EVERY_MS = 250;
const INTERRUPT_FOR_MS = 5000;
const REGISTER_WITHIN_MS = 30_000;
const MAX_OUTPUT = 8 * 1024 * 1024;

export type EvalOptions = {
  timeoutMs?: number | undefined;
  onStdout?: ((text: Buffer) => void | Promise<void>) | undefined;
  onStderr?: ((text: Buffer) => void | Promise<void>) | undefined;
  signal?: AbortSignal | undefined;
};

export type EvalError = { type: string; message: string; traceback: string };

export type EvalResult = {
  /** the last value as text; null when there is none */
  text: string | null;
  /** the last value where JSON can carry it unchanged */
  json?: unknown;
  stdout: string;
  stderr: string;
  /** output beyond 8 MiB was dropped here; the callbacks got all of it */
  truncated: boolean;
  error: EvalError | null;
};

/** What a snapshot must know about an interpreter in it */
export type KernelFacts = {
  language: Language;
  version: string;
  /** "memory": the agent fills the generators' state at a fork; "message": the kernel is asked to reseed them */
  reseed: "memory" | "message";
  /** an eval was under way, whose output and result belong to nobody in a fork */
  busy: boolean;
};

type Message = { event: string; id?: number; [key: string]: unknown };

type Pending = {
  id: number;
  done: PromiseWithResolvers<EvalResult>;
  opts: EvalOptions;
  output: Record<"stdout" | "stderr", Buffer[]>;
  kept: number;
  truncated: boolean;
};

export class Kernel {
  readonly language: Language;
  readonly #agent: AgentConnection;
  #version = "";
  #reseed: KernelFacts["reseed"] = "message";
  #registered: Promise<unknown> = Promise.resolve();
  #stream: AgentStream | undefined;
  #process: GuestProcess | undefined;
  #line = "";
  readonly #decoder = new TextDecoder();
  readonly #evals: Pending[] = [];
  readonly #replies = new Map<number, (message: Message) => void>();
  readonly #ready = Promise.withResolvers<void>();
  // ids must not repeat those of another connection: an eval that was running at a branch still answers with its own
  #nextId = randomInt(2 ** 32) * 2 ** 20;
  /** an eval from before the fork may still run: our first one asks to be told when it begins */
  #foreignEval = false;
  #dead: ForkdError | undefined;
  #opened = false;

  private constructor(agent: AgentConnection, language: Language) {
    this.#agent = agent;
    this.language = language;
    this.#ready.promise.catch(() => undefined); // only start() waits for it
  }

  /** Starts a fresh interpreter and waits until it says that it is ready */
  static async start(
    agent: AgentConnection,
    language: Language,
    opts: { timeoutMs: number; signal?: AbortSignal | undefined },
  ): Promise<Kernel> {
    const kernel = new Kernel(agent, language);
    const early: Buffer[] = [];
    kernel.#process = await GuestProcess.start(agent, COMMANDS[language], {
      tag: `kernel/${language}`,
      control: true,
      cwd: "/",
      onOutput: (channel, bytes) => {
        if (!kernel.#version && channel !== "control") early.push(bytes);
        return kernel.#receive(channel, bytes);
      },
      signal: opts.signal,
    });
    const exit = kernel.#watch(kernel.#process.exited());
    const timeout = (): Error =>
      new ForkdError(
        "WARMUP_FAILED",
        `The ${language} kernel was not ready within ${opts.timeoutMs} ms.\n${Buffer.concat(early).toString()}`,
      );
    try {
      await within(kernel.#ready.promise, opts.timeoutMs, opts.signal, timeout);
    } catch (error) {
      await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 50))]);
      if (kernel.#dead)
        throw new ForkdError("WARMUP_FAILED", `The ${language} kernel ended before it was ready.\n${Buffer.concat(early).toString()}`);
      throw error;
    }
    return kernel;
  }

  /** Attaches to the interpreter of a fork, in one go with whatever was sent before on this connection; it answers the reseeding only if it is asked for it */
  static attach(agent: AgentConnection, facts: KernelFacts): { kernel: Kernel; reseeded: Promise<string[]> } {
    const kernel = new Kernel(agent, facts.language);
    kernel.#version = facts.version;
    kernel.#reseed = facts.reseed;
    kernel.#foreignEval = facts.busy;
    const { stream, process } = GuestProcess.attach(agent, `kernel/${facts.language}`, (channel, bytes) => kernel.#receive(channel, bytes));
    kernel.#stream = stream;
    void kernel.#watch(
      process.then(async (attached) => {
        kernel.#process = attached;
        return attached.exited();
      }),
    );
    const reseeded = facts.reseed === "memory" ? process.then(() => []) : kernel.#askToReseed(stream);
    reseeded.catch(() => undefined); // the caller awaits it later, or never when something else fails first
    return { kernel, reseeded };
  }

  /** What a snapshot taken now must remember */
  get facts(): KernelFacts {
    return { language: this.language, version: this.#version, reseed: this.#reseed, busy: this.#foreignEval || this.#evals.length > 0 };
  }

  /** Resolves when the agent knows where the generators are that the code so far has brought */
  async settled(): Promise<void> {
    await this.#registered;
  }

  #askToReseed(stream: AgentStream): Promise<string[]> {
    const id = this.#nextId++;
    const reply = Promise.withResolvers<string[]>();
    this.#replies.set(id, (message) => reply.resolve(Array.isArray(message["generators"]) ? message["generators"].map(String) : []));
    stream.end().catch((error: unknown) => reply.reject(error));
    const request = `${this.#opening()}${JSON.stringify({ op: "reseed", id, seed: randomBytes(32).toString("hex") })}\n`;
    stream.write(CHANNEL.control, Buffer.from(request)).catch((error: unknown) => reply.reject(error));
    return reply.promise;
  }

  /** The first thing sent to an attached kernel: a line end, which closes a half-received line of an earlier connection */
  #opening(): string {
    const opening = this.#opened ? "" : "\n";
    this.#opened = true;
    return opening;
  }

  /** Runs code; its own exceptions are in the result, everything else is thrown */
  async eval(code: string, opts: EvalOptions = {}): Promise<EvalResult> {
    opts.signal?.throwIfAborted();
    if (this.#dead) throw this.#dead;
    const pending: Pending = {
      id: this.#nextId++,
      done: Promise.withResolvers(),
      opts,
      output: { stdout: [], stderr: [] },
      kept: 0,
      truncated: false,
    };
    this.#evals.push(pending);
    pending.done.promise.catch(() => undefined); // awaited below, but sending may fail first
    await this.#send({ op: "eval", id: pending.id, code, ...(this.#foreignEval ? { mark: true } : {}) });
    return this.#awaitEval(pending);
  }

  async #awaitEval(pending: Pending): Promise<EvalResult> {
    const { timeoutMs = 0, signal } = pending.opts;
    const timedOut = new ForkdError("EVAL_TIMEOUT", `The ${this.language} code did not end within ${timeoutMs} ms and was interrupted.`);
    try {
      return await within(pending.done.promise, timeoutMs, signal, () => timedOut);
    } catch (error) {
      if (error !== timedOut && !signal?.aborted) throw error;
      if (!(await this.#interrupt(pending))) {
        const why = `The ${this.language} code did not end within ${timeoutMs} ms and does not react to an interrupt.`;
        throw new ForkdError("EVAL_TIMEOUT", why, { hint: "It runs on; later evals wait for it. Kill the sandbox if it never ends." });
      }
      throw error;
    }
  }

  /** Interrupts until the eval has ended; false when it does not */
  async #interrupt(pending: Pending): Promise<boolean> {
    const ended = pending.done.promise.then(
      () => true,
      () => true,
    );
    for (let waited = 0; waited < INTERRUPT_FOR_MS; waited += INTERRUPT_EVERY_MS) {
      // an eval still in line behind another one must not interrupt that one
      if (this.#evals[0] === pending && !this.#foreignEval) this.#process?.kill("SIGINT", "group");
      const pause = new Promise<boolean>((resolve) => setTimeout(resolve, INTERRUPT_EVERY_MS, false));
      if (await Promise.race([ended, pause])) return true;
    }
    return false;
  }

  async #send(message: object): Promise<void> {
    const bytes = Buffer.from(`${this.#opening()}${JSON.stringify(message)}\n`);
    if (this.#stream) await this.#stream.write(CHANNEL.control, bytes);
    else await this.#process?.writeControl(bytes);
  }

  #receive(channel: "stdout" | "stderr" | "control", bytes: Buffer): void | Promise<void> {
    if (channel === "control") {
      this.#receiveControl(bytes);
      return;
    }
    const current = this.#evals[0];
    if (!current || this.#foreignEval) return;
    if (current.kept + bytes.length <= MAX_OUTPUT) {
      current.kept += bytes.length;
      current.output[channel].push(bytes);
    } else {
      current.truncated = true;
    }
    return channel === "stdout" ? current.opts.onStdout?.(bytes) : current.opts.onStderr?.(bytes);
  }

  #receiveControl(bytes: Buffer): void {
    const lines = (this.#line + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#line = lines.pop() ?? "";
    for (const line of lines) {
      const message = parseMessage(line);
      if (message) this.#handle(message);
    }
  }

  #handle(message: Message): void {
    if (message.event === "ready") {
      this.#version = String(message["version"]);
      this.#ready.resolve();
    } else if (message.event === "generators") {
      this.#registered = this.#register(message);
    } else if (message.event === "start") {
      if (this.#evals.some((pending) => pending.id === message.id)) this.#foreignEval = false;
    } else if (message.event === "reseeded") {
      this.#replies.get(message.id ?? -1)?.(message);
      this.#replies.delete(message.id ?? -1);
    } else if (message.event === "result" || message.event === "error") {
      const at = this.#evals.findIndex((pending) => pending.id === message.id);
      if (at < 0) return; // of an eval from before the fork
      const [pending] = this.#evals.splice(at, 1);
      pending?.done.resolve(toResult(message, pending));
    }
  }

  /** Tells the agent where the interpreter's generators keep their state, to be filled anew at every fork */
  async #register(message: Message): Promise<void> {
    this.#reseed = "message";
    if (message["complete"] !== true || !Array.isArray(message["regions"])) return;
    const regions = message["regions"] as [string, number, number, string][];
    const payload = new Writer().str(`kernel/${this.language}`).list(regions, (writer, [name, address, length, fill]) => {
      writer
        .str(`${this.language}/${name}`)
        .u64(BigInt(address))
        .u32(length)
        .u8(fill === "zero" ? 1 : 0);
    });
    try {
      await this.#agent.call(T.REGIONS, payload.done(), { timeoutMs: REGISTER_WITHIN_MS });
      this.#reseed = "memory";
    } catch (error) {
      // then it is asked by message, as the kernels are that cannot tell
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  /** Fails everything that waits when the interpreter ends */
  async #watch(exited: Promise<unknown>): Promise<void> {
    let cause: unknown;
    try {
      cause = await exited;
    } catch (error) {
      cause = error;
    }
    this.#dead =
      cause instanceof ForkdError && cause.code === "AGENT_LOST"
        ? cause
        : new ForkdError("KERNEL_DIED", `The ${this.language} kernel has ended.`, { cause });
    this.#ready.reject(this.#dead);
    for (const pending of this.#evals.splice(0)) pending.done.reject(this.#dead);
  }
}

/** A line that is no message is the half of one whose sender is gone */
function parseMessage(line: string): Message | undefined {
  try {
    const message: unknown = JSON.parse(line);
    return typeof message === "object" && message !== null && "event" in message ? (message as Message) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function toResult(message: Message, pending: Pending): EvalResult {
  const error =
    message.event === "error"
      ? { type: String(message["type"]), message: String(message["message"]), traceback: String(message["traceback"]) }
      : null;
  return {
    text: typeof message["text"] === "string" ? message["text"] : null,
    ...("json" in message ? { json: message["json"] } : {}),
    stdout: Buffer.concat(pending.output.stdout).toString(),
    stderr: Buffer.concat(pending.output.stderr).toString(),
    truncated: pending.truncated,
    error,
  };
}
