// Warm interpreters in the guest. The contract is spec/kernel-protocol.md.

import { randomBytes, randomInt } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { Writer } from "./codec.ts";
import { throwIfCancelled, within, type AgentConnection } from "./connection.ts";
import { OutputTail } from "./growing-buffer.ts";
import type { EvalResult } from "./eval-output.ts";
import { LineReader, MAX_CONTROL_LINE, parseMessage, type GeneratorsMessage, type KernelMessage } from "./kernel-messages.ts";
import { checkRequest, COMMANDS, lineFor, type KernelRequest, type Language } from "./language.ts";
import { PendingEval, type EvalOptions } from "./pending-eval.ts";
import { GuestProcess } from "./process.ts";
import { CHANNEL, T } from "./protocol.ts";
import type { AgentStream } from "./stream.ts";

/** how often a timed-out eval is interrupted, and for how long in all */
const INTERRUPT_EVERY_MS = 250;
const INTERRUPT_FOR_MS = 5000;
const REGISTER_WITHIN_MS = 30_000;
const MAX_EARLY_OUTPUT = 16 * 1024;

export type KernelStart = {
  /** its name; that of the language, unless there are several of it */
  context?: string | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
};

/** What a snapshot must know about an interpreter in it */
export type KernelFacts = {
  language: Language;
  /** its name; without it, that of the language */
  context?: string | undefined;
  /** where it was started */
  cwd?: string | undefined;
  version: string;
  /** "memory": the agent fills the generators' state at a fork; "message": the kernel is asked to reseed them */
  reseed: "memory" | "message";
  /** an eval was under way, whose output and result belong to nobody in a fork */
  busy: boolean;
};

export class Kernel {
  readonly language: Language;
  /** its name */
  readonly context: string;
  readonly cwd: string;
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
  readonly #evals: PendingEval[] = [];
  readonly #reseeds = new Map<number, PromiseWithResolvers<string[]>>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #found = Promise.withResolvers<void>();
  readonly #over = Promise.withResolvers<void>();
  // ids must not repeat those of another connection: an eval that was running at a branch still answers with its own
  #nextId = randomInt(2 ** 32) * 2 ** 20;
  /** an eval from before the fork may still run */
  #foreignEval = false;
  /** id of the empty eval that tells when it has ended, and what waits for that */
  #probe: number | undefined;
  readonly #held: KernelRequest[] = [];
  #dead: ForkdError | undefined;
  #opened = false;

  private constructor(agent: AgentConnection, language: Language, opts: { context?: string | undefined; cwd?: string | undefined }) {
    this.#agent = agent;
    this.language = language;
    this.context = opts.context ?? language;
    this.cwd = opts.cwd ?? "/";
    this.#ready.promise.catch(() => undefined); // only start() waits for it
  }

  /** Starts a fresh interpreter and waits until it says that it is ready */
  static async start(agent: AgentConnection, language: Language, opts: KernelStart): Promise<Kernel> {
    const kernel = new Kernel(agent, language, opts);
    const early = new OutputTail(MAX_EARLY_OUTPUT);
    kernel.#process = await GuestProcess.start(agent, COMMANDS[language], {
      tag: kernel.#tag,
      control: true,
      cwd: kernel.cwd,
      env: opts.env,
      onOutput: (channel, bytes) => {
        if (!kernel.#version && channel !== "control") early.add(bytes);
        return kernel.#receive(channel, bytes);
      },
      signal: opts.signal,
    });
    kernel.#found.resolve();
    const exit = kernel.#watch(kernel.#process.exited());
    const timeout = (): Error =>
      new ForkdError("WARMUP_FAILED", `The ${language} kernel was not ready within ${opts.timeoutMs} ms.\n${early.toString()}`);
    try {
      await within(kernel.#ready.promise, opts.timeoutMs, opts.signal, timeout);
    } catch (error) {
      kernel.#process.kill("SIGKILL", "group"); // nobody would have a handle to it
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
    const kernel = new Kernel(agent, facts.language, facts);
    kernel.#version = facts.version;
    kernel.#reseed = facts.reseed;
    kernel.#foreignEval = facts.busy;
    const { stream, process } = GuestProcess.attach(agent, kernel.#tag, (channel, bytes) => kernel.#receive(channel, bytes));
    kernel.#stream = stream;
    void kernel.#watch(
      process.then(async (attached) => {
        kernel.#process = attached;
        kernel.#found.resolve();
        return attached.exited();
      }),
    );
    const reseeded = facts.reseed === "memory" ? process.then(() => []) : kernel.#askToReseed();
    reseeded.catch(() => undefined); // the caller awaits it later, or never when something else fails first
    return { kernel, reseeded };
  }

  /** What a snapshot taken now must remember */
  get facts(): KernelFacts {
    const { language, context, cwd } = this;
    return { language, context, cwd, version: this.#version, reseed: this.#reseed, busy: this.#foreignEval || this.#evals.length > 0 };
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
    const { env, warm } = opts;
    checkRequest(this.language, code, env);
    const pending = new PendingEval(this.#nextId++, opts);
    this.#evals.push(pending);
    // not awaited: sending may wait for credit, and the time runs from now on
    const request = { op: "eval" as const, id: pending.id, code, ...(warm ? { warm } : {}), ...(env ? { env } : {}) };
    if (this.#foreignEval) this.#hold(request);
    else this.#send(request);
    return this.#awaitEval(pending);
  }

  async #awaitEval(pending: PendingEval): Promise<EvalResult> {
    const { timeoutMs = 0, signal } = pending.opts;
    let timedOut: ForkdError | undefined;
    const timeOut = (): ForkdError => {
      timedOut = new ForkdError("EVAL_TIMEOUT", `The ${this.language} code did not end within ${timeoutMs} ms and was interrupted.`);
      return timedOut;
    };
    try {
      return await within(pending.outcome, timeoutMs, signal, timeOut);
    } catch (error) {
      pending.abandon();
      if (error === this.#dead || (await this.#interrupt(pending)) || error !== timedOut) throw error;
      const why = `The ${this.language} code did not end within ${timeoutMs} ms and does not react to an interrupt.`;
      throw new ForkdError("EVAL_TIMEOUT", why, { hint: "It runs on; later evals wait for it. Kill the sandbox if it never ends." });
    }
  }

  /** Interrupts until the eval has ended; false when it does not */
  async #interrupt(pending: PendingEval): Promise<boolean> {
    const ended = pending.answered.then(
      () => true,
      () => true,
    );
    for (let waited = 0; waited < INTERRUPT_FOR_MS; waited += INTERRUPT_EVERY_MS) {
      // an eval still in line behind another one must not interrupt that one
      if (this.#evals[0] === pending && !this.#foreignEval) this.#signal(this.#process, pending.id);
      const pause = new Promise<boolean>((resolve) => setTimeout(resolve, INTERRUPT_EVERY_MS, false));
      if (await Promise.race([ended, pause])) return true;
    }
    return false;
  }

  #signal(process: GuestProcess | undefined, id?: number): void {
    process?.kill("SIGINT", "group");
    if (this.language === "node") this.#send({ op: "interrupt", id });
  }

  /** What an earlier connection's eval still prints must not be taken for ours: nothing is sent before an empty one behind it has ended */
  #hold(request: KernelRequest): void {
    this.#held.push(request);
    if (this.#probe !== undefined) return;
    this.#probe = this.#nextId++;
    this.#send({ op: "eval", id: this.#probe, code: "", warm: true });
  }

  #begin(): void {
    this.#foreignEval = false;
    this.#probe = undefined;
    for (const request of this.#held.splice(0)) this.#send(request);
  }

  /** From the next code on; what it runs now is not touched */
  setEnvironment(env: Record<string, string>): void {
    this.#send({ op: "environment", id: this.#nextId++, env });
  }

  /** Ends it, with everything that it runs */
  async kill(): Promise<void> {
    const process = await this.#attached();
    process?.kill("SIGKILL", "group");
    await this.#over.promise;
  }

  /** Interrupts what it runs, until that has ended; when it runs nothing, that means nothing */
  async interrupt(): Promise<void> {
    const process = await this.#attached();
    const [running] = this.#evals;
    // code of an earlier connection answers to nobody here
    if (!running || this.#foreignEval) this.#signal(process);
    else if (!(await this.#interrupt(running)))
      throw new ForkdError("EVAL_TIMEOUT", `The ${this.language} code does not react to an interrupt.`);
  }

  /** Of its process in the guest; undefined when that is gone */
  async pid(): Promise<number | undefined> {
    return (await this.#attached())?.pid;
  }

  /** Its process; none when there was nothing to attach to */
  async #attached(): Promise<GuestProcess | undefined> {
    await Promise.race([this.#over.promise, this.#found.promise]);
    return this.#process;
  }

  #send(request: KernelRequest): void {
    const bytes = Buffer.from(`${this.#opening()}${lineFor(this.language, request)}\n`);
    this.#sent = this.#sent
      .then(async () => (this.#stream ? this.#stream.write(CHANNEL.control, bytes) : this.#process?.writeControl(bytes)))
      .catch((error: unknown) => this.#die(error)); // only a stream that is over refuses
  }

  #receive(channel: "stdout" | "stderr" | "control", bytes: Buffer): void | Promise<void> {
    if (this.#dead) return;
    if (channel === "control") return this.#receiveControl(bytes);
    const current = this.#evals[0];
    if (!current || this.#foreignEval) return;
    return current.print(channel, bytes);
  }

  #receiveControl(bytes: Buffer): void | Promise<void> {
    const lines = this.#lines.push(bytes);
    const waiting: Promise<void>[] = [];
    for (const line of lines ?? []) {
      const message = parseMessage(line);
      const wait = message && this.#handle(message, line.length);
      if (wait) waiting.push(wait);
    }
    if (lines) return waiting.length > 0 ? Promise.all(waiting).then(() => undefined) : undefined;
    this.#die(undefined, `sent a control message of more than ${MAX_CONTROL_LINE} bytes and was given up`);
    if (this.#stream) this.#stream.cancel();
    else this.#process?.detach();
  }

  #handle(message: KernelMessage, bytes: number): void | Promise<void> {
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
      case "reseeded":
        this.#reseeds.get(message.id)?.resolve(message.generators);
        this.#reseeds.delete(message.id);
        return;
      case "display": {
        const pending = this.#evals[0];
        if (pending?.id !== message.id) return; // of an eval from before the fork, or of code that pretends
        return pending.display(message, bytes);
      }
      case "result":
      case "status":
      case "error": {
        if (message.id === this.#probe) return this.#begin();
        if (message.event === "error")
          this.#reseeds.get(message.id)?.reject(new ForkdError("FORK_FAILED", `${message.type}: ${message.message}`));
        const at = this.#evals.findIndex((pending) => pending.id === message.id);
        if (at < 0) return; // of an eval from before the fork
        const [pending] = this.#evals.splice(at, 1);
        return pending?.end(message, bytes);
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
      const payload = new Writer().str(this.#tag).list(regions, (writer, [name, address, length, fill]) => {
        writer
          .str(`${this.context}/${name}`)
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

  /** Under what name the agent has its process */
  get #tag(): string {
    return `kernel/${this.context}`;
  }

  #die(cause: unknown, how = "has ended"): void {
    if (this.#dead) return;
    this.#over.resolve();
    this.#dead =
      cause instanceof ForkdError && cause.code === "AGENT_LOST"
        ? cause
        : new ForkdError("KERNEL_DIED", `The ${this.language} kernel ${how}.`, { cause });
    this.#ready.reject(this.#dead);
    for (const pending of this.#evals.splice(0)) pending.fail(this.#dead);
    for (const reply of this.#reseeds.values()) reply.reject(this.#dead);
    this.#reseeds.clear();
  }
}
