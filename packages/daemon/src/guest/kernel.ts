// Warm interpreters in the guest. The contract is spec/kernel-protocol.md.

import { randomBytes, randomInt } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { Writer } from "./codec.ts";
import { throwIfCancelled, within, type AgentConnection } from "./connection.ts";
import { GrowingBuffer, OutputTail } from "./growing-buffer.ts";
import { LineReader, MAX_CONTROL_LINE, parseMessage, type GeneratorsMessage, type KernelMessage } from "./kernel-messages.ts";
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
const MAX_EARLY_OUTPUT = 16 * 1024;

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

type Pending = {
  id: number;
  /** the kernel's answer, which comes also for an eval that nobody waits for any more */
  done: PromiseWithResolvers<EvalResult>;
  /** rejects with what a callback of the caller threw */
  callbacks: PromiseWithResolvers<never>;
  callbackFailed: boolean;
  opts: EvalOptions;
  output: Record<"stdout" | "stderr", GrowingBuffer>;
  truncated: boolean;
};

export class Kernel {
  readonly language: Language;
  readonly #agent: AgentConnection;
  #version = "";
  #reseed: KernelFacts["reseed"] = "message";
  /** the newest list of generators that the agent was not told yet */
  #generators: GeneratorsMessage | undefined;
  #registering = false;
  #registered: Promise<void> = Promise.resolve();
  #stream: AgentStream | undefined;
  #process: GuestProcess | undefined;
  /** what is sent, one message after another: two that wait for credit must not mix */
  #sent: Promise<void> = Promise.resolve();
  readonly #lines = new LineReader();
  readonly #evals: Pending[] = [];
  readonly #reseeds = new Map<number, PromiseWithResolvers<string[]>>();
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
    const early = new OutputTail(MAX_EARLY_OUTPUT);
    kernel.#process = await GuestProcess.start(agent, COMMANDS[language], {
      tag: `kernel/${language}`,
      control: true,
      cwd: "/",
      onOutput: (channel, bytes) => {
        if (!kernel.#version && channel !== "control") early.add(bytes);
        return kernel.#receive(channel, bytes);
      },
      signal: opts.signal,
    });
    const exit = kernel.#watch(kernel.#process.exited());
    const timeout = (): Error =>
      new ForkdError("WARMUP_FAILED", `The ${language} kernel was not ready within ${opts.timeoutMs} ms.\n${early.toString()}`);
    try {
      await within(kernel.#ready.promise, opts.timeoutMs, opts.signal, timeout);
    } catch (error) {
      await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 50))]);
      if (kernel.#dead)
        throw new ForkdError("WARMUP_FAILED", `The ${language} kernel ended before it was ready.\n${early.toString()}`, {
          cause: kernel.#dead,
        });
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
    const reseeded = facts.reseed === "memory" ? process.then(() => []) : kernel.#askToReseed();
    reseeded.catch(() => undefined); // the caller awaits it later, or never when something else fails first
    return { kernel, reseeded };
  }

  /** What a snapshot taken now must remember */
  get facts(): KernelFacts {
    return { language: this.language, version: this.#version, reseed: this.#reseed, busy: this.#foreignEval || this.#evals.length > 0 };
  }

  /** Why it takes no more code */
  get dead(): ForkdError | undefined {
    return this.#dead;
  }

  /** Resolves when the agent knows where the generators are that the code so far has brought */
  async settled(): Promise<void> {
    await this.#registered;
  }

  #askToReseed(): Promise<string[]> {
    const id = this.#nextId++;
    const reply = Promise.withResolvers<string[]>();
    this.#reseeds.set(id, reply);
    this.#send({ op: "reseed", id, seed: randomBytes(32).toString("hex") });
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
    throwIfCancelled(opts.signal);
    if (this.#dead) throw this.#dead;
    const pending: Pending = {
      id: this.#nextId++,
      done: Promise.withResolvers(),
      callbacks: Promise.withResolvers(),
      callbackFailed: false,
      opts,
      output: { stdout: new GrowingBuffer(), stderr: new GrowingBuffer() },
      truncated: false,
    };
    this.#evals.push(pending);
    // not awaited: sending may wait for credit, and the time runs from now on
    this.#send({ op: "eval", id: pending.id, code, ...(this.#foreignEval ? { mark: true } : {}) });
    return this.#awaitEval(pending);
  }

  async #awaitEval(pending: Pending): Promise<EvalResult> {
    const { timeoutMs = 0, signal } = pending.opts;
    let timedOut: ForkdError | undefined;
    const timeOut = (): ForkdError => {
      timedOut = new ForkdError("EVAL_TIMEOUT", `The ${this.language} code did not end within ${timeoutMs} ms and was interrupted.`);
      return timedOut;
    };
    try {
      return await within(Promise.race([pending.done.promise, pending.callbacks.promise]), timeoutMs, signal, timeOut);
    } catch (error) {
      if (error === this.#dead || (await this.#interrupt(pending)) || error !== timedOut) throw error;
      const why = `The ${this.language} code did not end within ${timeoutMs} ms and does not react to an interrupt.`;
      throw new ForkdError("EVAL_TIMEOUT", why, { hint: "It runs on; later evals wait for it. Kill the sandbox if it never ends." });
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

  #send(message: object): void {
    const bytes = Buffer.from(`${this.#opening()}${JSON.stringify(message)}\n`);
    this.#sent = this.#sent
      .then(async () => (this.#stream ? this.#stream.write(CHANNEL.control, bytes) : this.#process?.writeControl(bytes)))
      .catch((error: unknown) => this.#die(error)); // only a stream that is over refuses
  }

  #receive(channel: "stdout" | "stderr" | "control", bytes: Buffer): void | Promise<void> {
    if (this.#dead) return;
    if (channel === "control") {
      this.#receiveControl(bytes);
      return;
    }
    const current = this.#evals[0];
    if (!current || this.#foreignEval) return;
    const { stdout, stderr } = current.output;
    if (!current.output[channel].add(bytes, MAX_OUTPUT - (channel === "stdout" ? stderr : stdout).length)) current.truncated = true;
    if (current.callbackFailed) return;
    const failed = (error: unknown): void => {
      current.callbackFailed = true;
      current.callbacks.reject(error);
    };
    try {
      const waiting = channel === "stdout" ? current.opts.onStdout?.(bytes) : current.opts.onStderr?.(bytes);
      return waiting && Promise.resolve(waiting).catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  #receiveControl(bytes: Buffer): void {
    const lines = this.#lines.push(bytes);
    for (const line of lines ?? []) {
      const message = parseMessage(line);
      if (message) this.#handle(message);
    }
    if (lines) return;
    this.#die(undefined, `sent a control message of more than ${MAX_CONTROL_LINE} bytes and was given up`);
    if (this.#stream) this.#stream.cancel();
    else this.#process?.detach();
  }

  #handle(message: KernelMessage): void {
    switch (message.event) {
      case "ready":
        this.#version = message.version;
        this.#ready.resolve();
        return;
      case "generators":
        this.#reseed = "message";
        this.#generators = message;
        if (!this.#registering) this.#registered = this.#register();
        return;
      case "start":
        if (this.#evals.some((pending) => pending.id === message.id)) this.#foreignEval = false;
        return;
      case "reseeded":
        this.#reseeds.get(message.id)?.resolve(message.generators);
        this.#reseeds.delete(message.id);
        return;
      case "result":
      case "error": {
        if (message.event === "error")
          this.#reseeds.get(message.id)?.reject(new ForkdError("FORK_FAILED", `${message.type}: ${message.message}`));
        const at = this.#evals.findIndex((pending) => pending.id === message.id);
        if (at < 0) return; // of an eval from before the fork
        const [pending] = this.#evals.splice(at, 1);
        pending?.done.resolve(toResult(message, pending));
      }
    }
  }

  /** Tells the agent where the interpreter's generators keep their state, to be filled anew at every fork; one list at a time, the newest */
  async #register(): Promise<void> {
    this.#registering = true;
    while (this.#generators) {
      const { regions, complete } = this.#generators;
      this.#generators = undefined;
      if (!complete) continue;
      const payload = new Writer().str(`kernel/${this.language}`).list(regions, (writer, [name, address, length, fill]) => {
        writer
          .str(`${this.language}/${name}`)
          .u64(BigInt(address))
          .u32(length)
          .u8(fill === "zero" ? 1 : 0);
      });
      // when it fails, the kernel is asked by message, as those are that cannot tell
      const told = await this.#agent.call(T.REGIONS, payload.done(), { timeoutMs: REGISTER_WITHIN_MS }).then(
        () => true,
        () => false,
      );
      if (told && !this.#generators) this.#reseed = "memory";
    }
    this.#registering = false;
  }

  /** Fails everything that waits when the interpreter ends */
  async #watch(exited: Promise<unknown>): Promise<void> {
    let cause: unknown;
    try {
      cause = await exited;
    } catch (error) {
      cause = error;
    }
    this.#die(cause);
  }

  #die(cause: unknown, how = "has ended"): void {
    if (this.#dead) return;
    this.#dead =
      cause instanceof ForkdError && cause.code === "AGENT_LOST"
        ? cause
        : new ForkdError("KERNEL_DIED", `The ${this.language} kernel ${how}.`, { cause });
    this.#ready.reject(this.#dead);
    for (const pending of this.#evals.splice(0)) pending.done.reject(this.#dead);
    for (const reply of this.#reseeds.values()) reply.reject(this.#dead);
    this.#reseeds.clear();
  }
}

function toResult(message: Extract<KernelMessage, { event: "result" | "error" }>, pending: Pending): EvalResult {
  const failed = message.event === "error";
  return {
    text: failed ? null : message.text,
    ...(!failed && "json" in message ? { json: message.json } : {}),
    stdout: pending.output.stdout.bytes().toString(),
    stderr: pending.output.stderr.bytes().toString(),
    truncated: pending.truncated,
    error: failed ? { type: message.type, message: message.message, traceback: message.traceback } : null,
  };
}
