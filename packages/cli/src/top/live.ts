// forkd top on a terminal: follows events and usage, draws the tree, runs the actions of keys.

import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, ForkdError, TimeoutError } from "forkd";
import { ABORTABLE } from "../daemon/connect.ts";
import { problemOf } from "../exit.ts";
import { isUtf8 } from "../terminal/tree-lines.ts";
import { bodyHeight, frame } from "./frame.ts";
import { keysIn, press, settle, START, type Action, type TopState, type Totals } from "./keys.ts";
import { differs, factsOf, rowsOf, usageOf, type Facts, type Row, type Usage } from "./rows.ts";
import { Screen } from "./screen.ts";

import type { Controller, SandboxStats, Tree } from "forkd";

/** Time between two readings of the usage */
const USAGE_MS = 2000;
/** Reading the usage of many sandboxes takes time; it stays below this part of the daemon's time */
const USAGE_SHARE = 5;
/** Many events within this time are one refresh */
const REFRESH_MS = 200;
const RETRY_MS = 1000;
const CALL_MS = 15_000;

export type Ending = "quit" | "interrupt";

export async function fetchFacts(forkd: Controller, signal: AbortSignal): Promise<{ facts: Facts; stats: SandboxStats[] }> {
  const call = { signal, timeoutMs: CALL_MS };
  const [tree, sandboxes, stats] = await Promise.all([forkd.tree(call), forkd.listSandboxes(call), forkd.stats(call)]);
  return { facts: factsOf(tree, sandboxes, usageOf(stats, Date.now())), stats };
}

/** Resolves when the user quits; rejects when the signal aborts or the daemon refuses */
export async function liveTop(forkd: Controller, signal: AbortSignal): Promise<Ending> {
  const first = await fetchFacts(forkd, signal);
  const stop = new AbortController();
  const ended = Promise.withResolvers<Ending>();
  signal.addEventListener("abort", () => ended.reject(signal.reason as Error), { once: true });
  using top = new Top(forkd, AbortSignal.any([signal, stop.signal]), first, ended.resolve);
  try {
    await Promise.race([ended.promise, top.followEvents(), top.followTree(), top.followUsage()]);
    return await ended.promise;
  } finally {
    stop.abort();
  }
}

class Top implements Disposable {
  readonly #forkd: Controller;
  readonly #signal: AbortSignal;
  readonly #end: (how: Ending) => void;
  readonly #screen: Screen;
  readonly #utf8 = isUtf8();
  #facts: Facts;
  #reading: { cpuMs: Map<string, number>; at: number };
  #rows: Row[] = [];
  #state: TopState = START;
  #work: string | undefined;
  /** why the shown tree may be old */
  #away: string | undefined;
  #isStale = false;
  #wake = Promise.withResolvers<void>();

  constructor(forkd: Controller, signal: AbortSignal, first: { facts: Facts; stats: SandboxStats[] }, end: (how: Ending) => void) {
    this.#forkd = forkd;
    this.#signal = signal;
    this.#end = end;
    this.#facts = first.facts;
    this.#reading = readingOf(first.stats);
    // what happens before the stream of events is open is found by the second look
    this.#refreshSoon();
    this.#screen = new Screen({ keys: (typed) => this.#type(typed), end: () => end("quit"), resize: () => this.#draw() });
    this.#draw();
  }

  async followEvents(): Promise<void> {
    const events = this.#forkd.events({ signal: this.#signal })[Symbol.asyncIterator]();
    while (!(await events.next()).done) this.#refreshSoon();
  }

  async followTree(): Promise<void> {
    while (await this.#isWoken()) {
      const call = { signal: this.#signal, timeoutMs: CALL_MS };
      await this.#asking(async () => {
        const [tree, sandboxes] = await Promise.all([this.#forkd.tree(call), this.#forkd.listSandboxes(call)]);
        this.#facts = factsOf(tree, sandboxes, this.#facts.usage);
        this.#isStale = false;
      });
      await this.#pause(this.#isStale ? RETRY_MS : REFRESH_MS);
      if (this.#isStale) this.#wake.resolve();
    }
  }

  async followUsage(): Promise<void> {
    let tookMs = 0;
    while (await this.#pause(Math.max(USAGE_MS, tookMs * USAGE_SHARE))) {
      const start = Date.now();
      await this.#asking(async () => {
        const stats = await this.#forkd.stats({ signal: this.#signal, timeoutMs: CALL_MS });
        this.#facts = { ...this.#facts, usage: usageOf(stats, Date.now(), this.#reading) };
        this.#reading = readingOf(stats);
        if (differs(this.#facts.tree, stats)) this.#refreshSoon();
      });
      tookMs = Date.now() - start;
    }
  }

  [Symbol.dispose](): void {
    this.#screen[Symbol.dispose]();
  }

  #refreshSoon(): void {
    this.#isStale = true;
    this.#wake.resolve();
  }

  async #isWoken(): Promise<boolean> {
    await this.#wake.promise;
    this.#wake = Promise.withResolvers();
    return !this.#signal.aborted;
  }

  /** False: the command ends */
  async #pause(ms: number): Promise<boolean> {
    try {
      await sleep(ms, undefined, { signal: this.#signal });
    } catch {
      return false; // sleep rejects only when the signal aborts
    }
    return true;
  }

  /** A daemon that is away may come back: the last tree stays on the screen */
  async #asking(ask: () => Promise<void>): Promise<void> {
    try {
      await ask();
      this.#away = undefined;
    } catch (error) {
      if (this.#signal.aborted) return;
      if (!isTemporary(error)) throw error;
      this.#refreshSoon();
      this.#away = `The daemon does not answer; this tree is old. ${problemOf(error).error}`;
    }
    this.#draw();
  }

  #type(typed: string): void {
    for (const key of keysIn(typed)) {
      const { state, action } = press(this.#state, key, this.#rows, bodyHeight(this.#screen.size));
      this.#state = state;
      this.#arrange();
      if (action) this.#act(action);
    }
    this.#draw();
  }

  #act(action: Action): void {
    if (action.kind === "quit" || action.kind === "interrupt") this.#end(action.kind);
    else if (this.#work !== undefined) this.#say(`Not yet: ${this.#work}`, true);
    else {
      this.#work = workOf(action);
      void this.#run(action);
    }
  }

  async #run(action: Exclude<Action, { kind: Ending }>): Promise<void> {
    try {
      this.#say(await perform(this.#forkd, action, this.#signal), false);
    } catch (error) {
      if (this.#signal.aborted) return;
      const { error: what, hint, code } = problemOf(error);
      this.#say(`${what} ${hint} [${code}]`, true);
    } finally {
      this.#work = undefined;
    }
    this.#draw();
  }

  #say(text: string, isError: boolean): void {
    this.#state = { ...this.#state, message: { text, isError } };
  }

  #arrange(): void {
    this.#rows = rowsOf(this.#facts, this.#state.view);
    this.#state = settle({ ...this.#state, totals: totalsOf(this.#facts) }, this.#rows, bodyHeight(this.#screen.size));
  }

  #draw(): void {
    if (this.#signal.aborted) return;
    this.#arrange();
    const busy = this.#work === undefined ? undefined : { text: this.#work, isError: false };
    const away = this.#away === undefined ? undefined : { text: this.#away, isError: true };
    const state = { ...this.#state, message: this.#state.message ?? busy ?? away };
    this.#screen.draw(frame(this.#rows, state, { size: this.#screen.size, utf8: this.#utf8, now: Date.now() }));
  }
}

/** What was done, for the last line */
async function perform(forkd: Controller, action: Exclude<Action, { kind: Ending }>, signal: AbortSignal): Promise<string> {
  switch (action.kind) {
    case "kill":
      await forkd.killSandbox(action.id, { signal });
      return `Ended ${action.id}.`;
    case "branch": {
      const { tag, pause_ms: pauseMs } = await forkd.branchSandbox(action.id, { tag: action.tag, ...ABORTABLE, signal });
      return `Branched ${action.id} into ${tag}${pauseMs === null ? "" : `; it was stopped for ${pauseMs.toFixed(1)} ms`}.`;
    }
    case "fork": {
      const { target, n } = action;
      const request = { n, ...ABORTABLE, signal };
      const made =
        target.kind === "snapshot"
          ? await forkd.spawnSandboxes(target.name, request)
          : (await forkd.forkSandbox(target.name, request)).sandboxes;
      return n === 1 ? `Forked ${made[0]?.id ?? ""}.` : `Forked ${made.length} sandboxes.`;
    }
  }
}

function workOf(action: Exclude<Action, { kind: Ending }>): string {
  switch (action.kind) {
    case "kill":
      return `Ending ${action.id}.`;
    case "branch":
      return `Branching ${action.id}.`;
    case "fork":
      return `Forking ${action.target.name}${action.n === 1 ? "" : ` ${action.n} times`}.`;
  }
}

function isTemporary(error: unknown): boolean {
  return error instanceof ConnectionError || error instanceof TimeoutError || (error instanceof ForkdError && error.status === 503);
}

function readingOf(stats: readonly SandboxStats[]): { cpuMs: Map<string, number>; at: number } {
  return { cpuMs: new Map(stats.map((row) => [row.id, row.cpu_ms])), at: Date.now() };
}

function totalsOf(facts: Facts): Totals {
  const usages: Usage[] = [...facts.usage.values()];
  const cpus = usages.flatMap(({ cpu }) => cpu ?? []);
  return {
    ...countsOf(facts.tree),
    cpu: cpus.length === 0 ? undefined : cpus.reduce((a, b) => a + b, 0),
    memoryBytes: usages.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0),
  };
}

function countsOf(tree: Tree): { sandboxes: number; snapshots: number } {
  const counts = { sandboxes: 0, snapshots: 0 };
  const open = [...tree.roots];
  for (let node = open.pop(); node; node = open.pop()) {
    counts.snapshots++;
    counts.sandboxes += node.sandboxes.length;
    open.push(...node.snapshots);
  }
  return counts;
}
