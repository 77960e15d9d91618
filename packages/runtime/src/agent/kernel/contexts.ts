// The contexts of one sandbox: warm interpreters, each with its own state, one or more per language.

import { ForkdError } from "../../errors.ts";
import { newId } from "../../util/id.ts";
import { notFound } from "../../util/not-found.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { readFile } from "../files/content.ts";
import { Kernel, type KernelFacts } from "./kernel.ts";
import { COMMANDS, LANGUAGES, type Language } from "./language.ts";
import { listProcesses } from "../process/list.ts";
import { AgentError } from "../wire/stream.ts";

const START_WITHIN_MS = 120_000;
const CALL_WITHIN_MS = 30_000;
const MOST_CONTEXTS = 32;
const MOST_ENVIRONMENT = 1024 * 1024;

export type ContextOptions = {
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
};

export type ContextInfo = { id: string; language: Language; cwd: string; alive: boolean };

export class Contexts {
  readonly #agent: AgentConnection;
  readonly #kernels = new Map<string, Kernel>();
  readonly #starting = new Map<string, Promise<Kernel>>();
  /** one request to the guest for contexts that an earlier daemon started */
  #known: Promise<void> | undefined;

  /** @param isComplete whether this list has all contexts of the guest */
  constructor(agent: AgentConnection, kernels: readonly Kernel[], opts: { isComplete: boolean }) {
    this.#agent = agent;
    for (const kernel of kernels) this.#kernels.set(kernel.context, kernel);
    if (opts.isComplete) this.#known = Promise.resolve();
  }

  /** Of contexts that have not ended */
  get facts(): KernelFacts[] {
    return [...this.#kernels.values()].filter((kernel) => !kernel.dead).map((kernel) => kernel.facts);
  }

  /** Languages whose default context is ready */
  get languages(): Language[] {
    return LANGUAGES.filter((language) => this.#kernels.has(language)).toSorted((a, b) => this.#place(a) - this.#place(b));
  }

  /** Resolves when all contexts in the guest are known */
  async known(): Promise<void> {
    this.#known ??= this.#find().catch((error: unknown) => {
      this.#known = undefined; // retried at the next call
      throw error;
    });
    return this.#known;
  }

  async list(): Promise<ContextInfo[]> {
    await this.known();
    return [...this.#kernels.values()].map(infoOf);
  }

  /** A named context; or the default of a language, which is started on first use; else the first one */
  async get(which: { context?: string | undefined; language?: Language | undefined }, signal?: AbortSignal): Promise<Kernel> {
    const { context, language } = which;
    const found = this.#kernels.get(context ?? language ?? this.languages[0] ?? "");
    if (found) return found;
    await this.known();
    if (context !== undefined) return this.#named(context);
    const first = language ?? this.languages[0];
    if (first === undefined) throw new ForkdError("KERNEL_MISSING", "There is no kernel to run the code in.");
    return this.#kernels.get(first) ?? this.#start(first, first, { signal });
  }

  async create(language: Language, opts: ContextOptions = {}): Promise<ContextInfo> {
    await this.known();
    return infoOf(await this.#start(language, newId(language), opts));
  }

  /** The default context of a language; started when there is none, restarted when it has ended */
  async ensure(language: Language, opts: ContextOptions = {}): Promise<ContextInfo> {
    await this.known();
    const kernel = this.#kernels.get(language);
    return infoOf(kernel && !kernel.dead ? kernel : await this.#start(language, language, { cwd: kernel?.cwd, ...opts }));
  }

  async remove(context: string): Promise<void> {
    await this.known();
    const kernel = this.#named(context);
    await kernel.kill();
    if (this.#kernels.get(context) === kernel) this.#kernels.delete(context);
  }

  /** Restarts a context with the same name, folder and environment, without its state */
  async restart(context: string, signal?: AbortSignal): Promise<ContextInfo> {
    await this.known();
    const kernel = this.#named(context);
    const env = kernel.dead ? undefined : await this.#environmentOf(kernel);
    await kernel.kill();
    const { language, cwd } = kernel;
    return infoOf(await this.#start(language, context, { cwd, env, signal }));
  }

  async interrupt(context: string): Promise<void> {
    await this.known();
    await this.#named(context).interrupt();
  }

  #named(context: string): Kernel {
    const kernel = this.#kernels.get(context);
    if (!kernel) throw notFound("context", context, this.#kernels.keys());
    return kernel;
  }

  #place(language: Language): number {
    return [...this.#kernels.keys()].indexOf(language);
  }

  async #start(language: Language, context: string, opts: ContextOptions): Promise<Kernel> {
    const under = this.#starting.get(context);
    if (under) return under;
    if (this.#kernels.size + this.#starting.size >= MOST_CONTEXTS && !this.#kernels.has(context))
      throw new ForkdError("LIMIT_REACHED", `Cannot start another context: a sandbox has at most ${MOST_CONTEXTS}.`);
    const starting = this.#startNow(language, context, opts);
    this.#starting.set(context, starting);
    try {
      return await starting;
    } finally {
      this.#starting.delete(context);
    }
  }

  async #startNow(language: Language, context: string, opts: ContextOptions): Promise<Kernel> {
    try {
      const kernel = await Kernel.start(this.#agent, language, { ...opts, context, timeoutMs: START_WITHIN_MS });
      await kernel.settled();
      this.#kernels.set(context, kernel);
      return kernel;
    } catch (error) {
      if (!(error instanceof ForkdError) || !isMissing(error, COMMANDS[language])) throw error;
      throw new ForkdError("KERNEL_MISSING", `There is no ${language} kernel, and none can be started: the image has no ${language}.`, {
        cause: error,
      });
    }
  }

  async #find(): Promise<void> {
    const processes = await listProcesses(this.#agent, CALL_WITHIN_MS, { own: true });
    for (const { tag, cwd, exit } of processes) {
      const context = /^kernel\/([a-z0-9-]+)$/.exec(tag)?.[1];
      const language = LANGUAGES.find((name) => context === name || context?.startsWith(`${name}-`));
      if (context === undefined || language === undefined || exit || this.#kernels.has(context)) continue;
      const facts = { language, context, cwd, version: "", reseed: "message", busy: true } as const;
      this.#kernels.set(context, Kernel.attach(this.#agent, facts).kernel);
    }
  }

  async #environmentOf(kernel: Kernel): Promise<Record<string, string>> {
    const pid = await kernel.pid();
    if (pid === undefined) return {};
    const bytes = await readFile(this.#agent, `/proc/${pid}/environ`, { maxBytes: MOST_ENVIRONMENT });
    const pairs = bytes
      .toString()
      .split("\0")
      .filter((pair) => pair.includes("="));
    return Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
  }
}

function infoOf(kernel: Kernel): ContextInfo {
  const { context: id, language, cwd, dead } = kernel;
  return { id, language, cwd, alive: dead === undefined };
}

/** The message names the missing program or folder */
function isMissing(error: ForkdError, [program = ""]: readonly string[]): boolean {
  const { cause } = error;
  return error.code === "EXEC_FAILED" && cause instanceof AgentError && cause.errno === "ENOENT" && cause.message.startsWith(`${program}:`);
}
