// Warm interpreters in the guest. The contract is spec/kernel-protocol.md.

import { randomBytes, randomInt } from "node:crypto";
import { ForkdError } from "../../errors.ts";
import { Writer } from "../../util/codec.ts";
import { throwIfCancelled, within } from "../../util/within.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { OutputTail } from "../../util/growing-buffer.ts";
import type { EvalResult } from "./eval-output.ts";
import {
  LineReader,
  MAX_CONTROL_LINE,
  MAX_CONTROL_VALUES,
  parseMessage,
  valuesIn,
  type GeneratorsMessage,
  type KernelMessage,
} from "./messages.ts";
import { checkRequest, COMMANDS, lineFor, MISSING_STATUS, type KernelRequest, type Language } from "./language.ts";
import { PendingEval, type EvalOptions } from "./pending-eval.ts";
import { GuestProcess } from "../process/exclusive.ts";
import { CHANNEL, T } from "../wire/protocol.ts";
import type { AgentStream } from "../wire/stream.ts";
import { Pace } from "../../util/pace.ts";

/** Number of interrupts of an eval, and how long its caller waits for their effect */
const INTERRUPT_EVERY_MS = 250;
const INTERRUPT_FOR_MS = 5000;
/** Interval of further interrupts until the eval ends: without them one lost interrupt blocks the interpreter permanently */
const INTERRUPT_LATER_EVERY_MS = 1000;
const REGISTER_WITHIN_MS = 30_000;
const MAX_EARLY_OUTPUT = 16 * 1024;
/** Cost of control messages for the daemon's thread, in values of about 50 ns: code in the guest can send any number */
const VALUES_PER_LINE = 100;
const VALUES_PER_MS = 4000;
const MAX_VALUES_AT_ONCE = 400_000;

export type KernelStart = {
  /** its name; by default the language */
  context?: string | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
};

/** The facts about an interpreter that a snapshot stores */
export type KernelFacts = {
  language: Language;
  /** its name; default: the language */
  context?: string | undefined;
  /** its working directory */
  cwd?: string | undefined;
  version: string;
  /** "memory": the agent writes the generators' state at a fork; "message": the kernel is asked to reseed them */
  reseed: "memory" | "message";
  /** an eval was running; in a fork its output and result have no receiver */
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
  /** the newest list of generators that was not sent to the agent */
  #generators: GeneratorsMessage | undefined;
  #registering = false;
  #registered: Promise<void> = Promise.resolve();
  #stream: AgentStream | undefined;
  #process: GuestProcess | undefined;
  /** sends messages in sequence: two that wait for credit must not interleave */
  #sent: Promise<void> = Promise.resolve();
  readonly #lines = new LineReader();
  readonly #pace = new Pace({ perMs: VALUES_PER_MS, burst: MAX_VALUES_AT_ONCE, hold: () => this.#rest() });
  /** no message is read before this settles */
  #resting: Promise<void> | undefined;
  /** the eval that was sent to the interpreter and not answered */
  #running: PendingEval | undefined;
  /** in sequence: an interrupt for an eval that has just ended must not reach the next */
  readonly #waiting: PendingEval[] = [];
  readonly #reseeds = new Map<number, PromiseWithResolvers<string[]>>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #found = Promise.withResolvers<void>();
  readonly #over = Promise.withResolvers<void>();
  // Ids must differ from those of other connections: an eval that was running at a branch answers with its old id.
  #nextId = randomInt(2 ** 32) * 2 ** 20;
  /** whether an eval from before the fork may still be running */
  #foreignEval = false;
  /** id of the empty eval whose answer marks the end of that eval */
  #probe: number | undefined;
  #dead: ForkdError | undefined;
  #opened = false;

  private constructor(agent: AgentConnection, language: Language, opts: { context?: string | undefined; cwd?: string | undefined }) {
    this.#agent = agent;
    this.language = language;
    this.context = opts.context ?? language;
    this.cwd = opts.cwd ?? "/";
    this.#ready.promise.catch(() => undefined); // only start() awaits it
  }

  /** Starts a new interpreter and waits until it reports ready */
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
      const dead = kernel.#dead;
      kernel.#process.kill("SIGKILL", "group"); // otherwise it would run without a handle
      await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 50))]);
      // It was late, or the caller has left. That it has ended now is the effect, not the cause.
      if (!dead) throw error;
      if (isMissing(dead.cause))
        throw new ForkdError(
          "KERNEL_MISSING",
          `There is no ${language} kernel, and none can be started: the image cannot run ${language}, ${early.toString().trim()}.`,
          { cause: dead },
        );
      throw new ForkdError("WARMUP_FAILED", `The ${language} kernel ended before it was ready.\n${early.toString()}`, { cause: dead });
    }
    return kernel;
  }

  /** Attaches to the interpreter of a fork without a round trip; it answers the reseed only if it was asked for one */
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
    reseeded.catch(() => undefined); // the caller awaits it later, or never when another step fails first
    return { kernel, reseeded };
  }

  /** The facts for a snapshot taken now */
  get facts(): KernelFacts {
    const { language, context, cwd } = this;
    return { language, context, cwd, version: this.#version, reseed: this.#reseed, busy: this.#foreignEval || this.#running !== undefined };
  }

  /** Why it accepts no more code */
  get dead(): ForkdError | undefined {
    return this.#dead;
  }

  /** Resolves when the agent has the addresses of all generators that the code so far has created */
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

  /** The first bytes to an attached kernel: a line end, which terminates a partial line of an earlier connection */
  #opening(): string {
    const opening = this.#opened ? "" : "\n";
    this.#opened = true;
    return opening;
  }

  /** Runs code; its exceptions are part of the result, other errors are thrown */
  async eval(code: string, opts: EvalOptions = {}): Promise<EvalResult> {
    throwIfCancelled(opts.signal);
    if (this.#dead) throw this.#dead;
    const { env, warm } = opts;
    checkRequest(this.language, code, env);
    const id = this.#nextId++;
    const pending = new PendingEval({ op: "eval", id, code, ...(warm ? { warm } : {}), ...(env ? { env } : {}) }, opts);
    this.#waiting.push(pending);
    this.#sendNext();
    return this.#awaitEval(pending);
  }

  async #awaitEval(pending: PendingEval): Promise<EvalResult> {
    const { timeoutMs = 0, signal } = pending.opts;
    let timedOut: ForkdError | undefined;
    const timeOut = (): ForkdError => {
      const what = this.#running === pending ? "did not end" : "did not begin";
      const why = this.#running === pending ? "and was interrupted" : "because other code runs in the interpreter";
      timedOut = new ForkdError("EVAL_TIMEOUT", `The ${this.language} code ${what} within ${timeoutMs} ms ${why}.`);
      return timedOut;
    };
    try {
      return await within(pending.outcome, timeoutMs, signal, timeOut);
    } catch (error) {
      pending.abandon();
      if (error === this.#dead || this.#withdraw(pending) || (await this.#interrupt(pending))) throw error;
      void this.#interrupt(pending, { everyMs: INTERRUPT_LATER_EVERY_MS, forMs: Infinity });
      if (error !== timedOut) throw error;
      const why = `The ${this.language} code did not end within ${timeoutMs} ms and does not react to an interrupt.`;
      throw new ForkdError("EVAL_TIMEOUT", why, {
        hint: "It keeps running, and later evals wait for it. Kill the sandbox if it never ends.",
      });
    }
  }

  /** Withdraws an eval that was not sent to the interpreter; false when it was sent */
  #withdraw(pending: PendingEval): boolean {
    const at = this.#waiting.indexOf(pending);
    if (at >= 0) this.#waiting.splice(at, 1);
    return at >= 0;
  }

  /** Interrupts until the eval has ended; false when it does not end */
  async #interrupt(pending: PendingEval, { everyMs = INTERRUPT_EVERY_MS, forMs = INTERRUPT_FOR_MS } = {}): Promise<boolean> {
    const ended = pending.answered.then(
      () => true,
      () => true,
    );
    for (let waited = 0; waited < forMs; waited += everyMs) {
      this.#signal(this.#process, pending.id);
      const pause = new Promise<boolean>((resolve) => setTimeout(resolve, everyMs, false));
      if (await Promise.race([ended, pause])) return true;
    }
    return false;
  }

  #signal(process: GuestProcess | undefined, id?: number): void {
    process?.kill("SIGINT", "group");
    if (this.language === "node" || this.language === "typescript") this.#send({ op: "interrupt", id });
  }

  #sendNext(): void {
    if (this.#running || this.#waiting.length === 0) return;
    // Output of an eval of an earlier connection must not appear as ours: the answer to an empty eval queued behind it marks its end.
    if (this.#foreignEval) return this.#sendProbe();
    this.#running = this.#waiting.shift();
    // Not awaited: sending may wait for credit, and the time limit of the eval has started.
    if (this.#running) this.#send(this.#running.request);
  }

  #sendProbe(): void {
    if (this.#probe !== undefined) return;
    this.#probe = this.#nextId++;
    this.#send({ op: "eval", id: this.#probe, code: "", warm: true });
  }

  /** For all later code; running code is not affected */
  setEnvironment(env: Record<string, string>): void {
    this.#send({ op: "environment", id: this.#nextId++, env });
  }

  /** Ends the interpreter and all its processes */
  async kill(): Promise<void> {
    const process = await this.#attached();
    process?.kill("SIGKILL", "group");
    await this.#over.promise;
  }

  /** Interrupts the running code until it has ended; without running code this has no effect */
  async interrupt(): Promise<void> {
    const process = await this.#attached();
    // Code of an earlier connection sends its answer elsewhere, so its end is not awaited.
    if (!this.#running) this.#signal(process);
    else if (!(await this.#interrupt(this.#running)))
      throw new ForkdError("EVAL_TIMEOUT", `The ${this.language} code does not react to an interrupt.`);
  }

  /** Of its process in the guest; undefined after its end */
  async pid(): Promise<number | undefined> {
    return (await this.#attached())?.pid;
  }

  /** Its process; undefined when there was none to attach to */
  async #attached(): Promise<GuestProcess | undefined> {
    await Promise.race([this.#over.promise, this.#found.promise]);
    return this.#process;
  }

  #send(request: KernelRequest): void {
    const bytes = Buffer.from(`${this.#opening()}${lineFor(this.language, request)}\n`);
    this.#sent = this.#sent
      .then(async () => (this.#stream ? this.#stream.write(CHANNEL.control, bytes) : this.#process?.writeControl(bytes)))
      .catch((error: unknown) => this.#die(error)); // only a closed stream refuses
  }

  #receive(channel: "stdout" | "stderr" | "control", bytes: Buffer): void | Promise<void> {
    if (this.#dead) return;
    if (channel === "control") return this.#receiveControl(bytes);
    return this.#running?.print(channel, bytes);
  }

  #receiveControl(bytes: Buffer): void | Promise<void> {
    const lines = this.#lines.push(bytes);
    return lines ? this.#readLines(lines, 0) : this.#giveUp(`${MAX_CONTROL_LINE} bytes`);
  }

  /** Continues reading after a rest: the lines of one frame could block the daemon for a second */
  #readLines(lines: readonly string[], from: number): void | Promise<void> {
    const waiting: Promise<void>[] = [];
    for (let at = from; at < lines.length && !this.#dead; at++) {
      const line = lines[at] ?? "";
      const values = valuesIn(line);
      if (values > MAX_CONTROL_VALUES) return this.#giveUp(`${MAX_CONTROL_VALUES} values`);
      const message = parseMessage(line);
      const wait = message && this.#handle(message, line.length);
      if (wait) waiting.push(wait);
      this.#pace.count(VALUES_PER_LINE + values);
      if (this.#resting) return Promise.all([this.#resting, ...waiting]).then(() => this.#readLines(lines, at + 1));
    }
    return waiting.length > 0 ? Promise.all(waiting).then(() => undefined) : undefined;
  }

  #rest(): Disposable {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resting = promise;
    const go = (): void => {
      this.#resting = undefined;
      resolve();
    };
    return { [Symbol.dispose]: go };
  }

  #giveUp(most: string): void {
    this.#die(undefined, `sent a control message of more than ${most} and was abandoned`);
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
      case "display":
        if (this.#running?.id !== message.id) return; // from an eval before the fork, or forged by code
        return this.#running.display(message, bytes);
      case "result":
      case "status":
      case "error": {
        if (message.id === this.#probe) {
          this.#foreignEval = false;
          this.#probe = undefined;
          return this.#sendNext();
        }
        if (message.event === "error")
          this.#reseeds.get(message.id)?.reject(new ForkdError("FORK_FAILED", `${message.type}: ${message.message}`));
        const ended = this.#running;
        if (ended?.id !== message.id) return; // from an eval before the fork, or forged by code
        this.#running = undefined;
        this.#sendNext();
        return ended.end(message, bytes);
      }
    }
  }

  /** Sends the agent the addresses of the generators' state, which it fills at every fork; one list at a time, the newest */
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
      // After a failure the kernel is reseeded by message, like kernels that report no addresses.
      const told = await this.#agent.call(T.REGIONS, payload.done(), { timeoutMs: REGISTER_WITHIN_MS }).then(
        () => true,
        () => false,
      );
      if (told && !this.#generators) this.#reseed = "memory";
    }
    this.#registering = false;
  }

  /** Rejects all waiting calls when the interpreter ends */
  async #watch(exited: Promise<unknown>): Promise<void> {
    let cause: unknown;
    try {
      cause = await exited;
    } catch (error) {
      cause = error;
    }
    this.#die(cause);
  }

  /** Tag of its process */
  get #tag(): string {
    return `kernel/${this.context}`;
  }

  #die(cause: unknown, how = "has ended"): void {
    if (this.#dead) return;
    this.#pace.close();
    this.#over.resolve();
    this.#dead =
      cause instanceof ForkdError && cause.code === "AGENT_LOST"
        ? cause
        : new ForkdError("KERNEL_DIED", `The ${this.language} kernel ${how}.`, { cause });
    this.#ready.reject(this.#dead);
    this.#running?.fail(this.#dead);
    this.#running = undefined;
    for (const pending of this.#waiting.splice(0)) pending.fail(this.#dead);
    for (const reply of this.#reseeds.values()) reply.reject(this.#dead);
    this.#reseeds.clear();
  }
}

/** Error of a kernel whose image lacks a program */
function isMissing(exit: unknown): boolean {
  return (exit as { code?: unknown } | undefined)?.code === MISSING_STATUS;
}
