// The processes of one sandbox, each shared by its watchers and writers.

import { ForkdError } from "../../errors.ts";
import { throwIfCancelled } from "../../util/within.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { listProcesses, type ProcessInfo } from "./list.ts";
import type { StartOptions } from "./exec.ts";
import { SharedProcess } from "./shared.ts";
import type { OutputChannel, Watch } from "./output.ts";
import { notFound } from "../../util/not-found.ts";

const CALL_WITHIN_MS = 30_000;
/** A client that consumes nothing for this long is dropped, so that a dead client cannot block a process; it can attach again */
const STALL_MS = 30_000;

/** By id, or by tag: the running process, else the one that ended last */
export type ProcessRef = { id: number } | { tag: string };

/** Per channel; "now": only new output */
export type From = { readonly [C in OutputChannel]?: number | "now" | undefined };

export class ProcessRegistry {
  readonly #agent: AgentConnection;
  readonly #stallMs: number;
  readonly #shared = new Map<number, SharedProcess>();
  /** programs that have no id yet */
  readonly #starting = new Set<Promise<unknown>>();

  constructor(agent: AgentConnection, opts: { stallMs?: number } = {}) {
    this.#agent = agent;
    this.#stallMs = opts.stallMs ?? STALL_MS;
  }

  /** Starts a program, watched from its first byte; rejects with EXEC_FAILED when the guest cannot, with EXISTS when its tag is in use */
  async start(argv: readonly string[], opts: StartOptions = {}): Promise<Watch> {
    throwIfCancelled(opts.signal);
    const shared = this.#make(opts.terminal !== undefined);
    const starting = shared.start(argv, opts).then((watch) => {
      if (!shared.isOver) this.#shared.set(shared.id, shared);
      return watch;
    });
    this.#starting.add(starting);
    try {
      return await starting;
    } finally {
      this.#starting.delete(starting);
    }
  }

  async list(): Promise<ProcessInfo[]> {
    return listProcesses(this.#agent, CALL_WITHIN_MS);
  }

  /** Rejects with NOT_FOUND */
  async find(which: ProcessRef): Promise<ProcessInfo> {
    const all = await this.list();
    const found = "id" in which ? all.find(({ id }) => id === which.id) : newest(all.filter(({ tag }) => tag !== "" && tag === which.tag));
    if (found) return found;
    const tags = all.map(({ tag }) => tag);
    throw notFound("process", "id" in which ? String(which.id) : which.tag, "id" in which ? [] : tags);
  }

  /** Watches a process, from its beginning by default; output that is no longer kept is reported as lost */
  async watch(which: ProcessRef, from: From = {}): Promise<{ watch: Watch; info: ProcessInfo }> {
    const info = await this.find(which);
    const offsets = { stdout: offsetIn(info.stdout, from.stdout), stderr: offsetIn(info.stderr, from.stderr) };
    const attach = async (): Promise<Watch> => (await this.#sharedOf(info)).watch(info.id, offsets);
    try {
      return { watch: await attach(), info };
    } catch (error) {
      // It ended while another watcher was attaching; a second attempt gets its output and its end.
      if (!(error instanceof ForkdError) || error.code !== "PROCESS_ENDED") throw error;
      return { watch: await attach(), info };
    }
  }

  /** Writes to a process, signals or resizes it; rejects with PROCESS_ENDED when it has ended */
  async use<V>(which: ProcessRef, work: (process: SharedProcess, info: ProcessInfo) => Promise<V> | V): Promise<V> {
    const info = await this.find(which);
    if (info.exit) throw new ForkdError("PROCESS_ENDED", `Process ${info.id} has ended.`);
    const shared = await this.#sharedOf(info);
    return shared.hold(info.id, () => work(shared, info));
  }

  async #sharedOf(info: ProcessInfo): Promise<SharedProcess> {
    // A process that is being started here: its stream must not be taken over.
    await Promise.allSettled(this.#starting);
    const known = this.#shared.get(info.id);
    if (known) return known;
    const shared = this.#make(info.terminal);
    this.#shared.set(info.id, shared);
    return shared;
  }

  #make(terminal: boolean): SharedProcess {
    const onOver = (shared: SharedProcess): void => {
      for (const [id, known] of this.#shared) if (known === shared) this.#shared.delete(id);
    };
    return new SharedProcess(this.#agent, { terminal, stallMs: this.#stallMs, onOver });
  }
}

function newest(all: ProcessInfo[]): ProcessInfo | undefined {
  return all.findLast(({ exit }) => !exit) ?? all.at(-1);
}

/** An offset beyond the written output is an error: no output would ever arrive */
function offsetIn(end: number, from: number | "now" | undefined): number {
  return from === "now" ? end : Math.min(from ?? 0, end);
}
