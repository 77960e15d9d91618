// Zygotes: held VMMs from which the children of a snapshot are cloned. One per snapshot, created at its second fork.

import { readFile } from "node:fs/promises";
import { availableParallelism, totalmem } from "node:os";
import { messageOf } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Vm } from "../vmm/driver.ts";
import {
  canBeCloned,
  cloneUnclaimedVm,
  discardHeldVm,
  discardUnclaimedVm,
  startUnclaimedVm,
  type ForkContext,
  type HeldVm,
  type StartOptions,
  type UnclaimedVm,
} from "./fork.ts";
import { rehearse } from "./rehearsal.ts";
import { endingOf, outputOf } from "./vmm-end.ts";

/**
 * A request for at least this many children creates a zygote first. Measured with 2 cores: a zygote takes as long as 8
 * restored children. It uses one core, and restored children start on all cores
 */
const FIRST_FROM = 4 * availableParallelism();
/** Share of the host's memory for all zygotes */
const MEMORY_SHARE = 0.1;

export type ZygoteLimits = {
  /** for all zygotes; the most recently used one is always kept */
  memoryBytes: number;
  /** all clones inherit a zygote's faults, so it is replaced after this many */
  clones: number;
  ageMs: number;
  /** a copy of a branch's source keeps memory that the source has changed since, so it ends when it is not used for so long */
  idleMs: number;
};
const LIMITS: ZygoteLimits = { memoryBytes: totalmem() * MEMORY_SHARE, clones: 2000, ageMs: 3_600_000, idleMs: 120_000 };
/** Looks for idle ones so often in that time */
const IDLE_CHECKS = 4;

/** `isCopy`: its memory is that of the snapshot, because it was not rehearsed */
type Zygote = { child: HeldVm; bytes: number; isCopy: boolean; clones: number; madeAt: number; usedAt: number };

export type ZygoteOptions = {
  context: ForkContext;
  onError: (message: string) => void;
  limits?: Partial<ZygoteLimits> | undefined;
};

export class Zygotes {
  readonly #opts: ZygoteOptions;
  readonly #limits: ZygoteLimits;
  readonly #ready = new Map<string, Zygote>();
  readonly #making = new Map<string, Promise<void>>();
  readonly #forks = new Map<string, number>();
  /** reason why a snapshot has no zygote; it is not tried again */
  readonly #refused = new Map<string, string>();
  #closed = false;

  constructor(opts: ZygoteOptions) {
    this.#opts = opts;
    this.#limits = { ...LIMITS, ...opts.limits };
  }

  /** Reason why the last eligible snapshot has no zygote */
  get refusal(): string | null {
    return this.#opts.context.engine.cloneObstacle ?? [...this.#refused.values()].at(-1) ?? null;
  }

  get size(): number {
    return this.#ready.size;
  }

  /** Call before `n` children of a snapshot are started; resolves when it is decided whether they are cloned */
  async prepare(snapshot: Snapshot, n: number): Promise<void> {
    const { id } = snapshot.manifest;
    if (!this.#canHave(snapshot)) return;
    const forks = (this.#forks.get(id) ?? 0) + n;
    this.#forks.set(id, forks);
    if (this.#ready.has(id)) return;
    if (n >= FIRST_FROM) return void (await this.make(snapshot));
    if (forks > 1) void this.make(snapshot);
  }

  /** Creates a zygote unless one exists; false: the snapshot has none. Never throws */
  async make(snapshot: Snapshot): Promise<boolean> {
    const { id } = snapshot.manifest;
    if (this.#ready.has(id)) return true;
    if (!this.#canHave(snapshot)) return false;
    // one that was asked for and has ended is made again at the next fork
    if (!this.#forks.has(id)) this.#forks.set(id, 1);
    const making = this.#making.get(id) ?? this.#make(snapshot).finally(() => this.#making.delete(id));
    this.#making.set(id, making);
    await making;
    return this.#ready.has(id);
  }

  /** Clones a paused child; undefined if there is no zygote or the clone failed: the caller then restores the child */
  async clone(snapshot: Snapshot, opts: StartOptions): Promise<UnclaimedVm | undefined> {
    const { id } = snapshot.manifest;
    const zygote = this.#ready.get(id);
    if (!zygote) return undefined;
    zygote.usedAt = performance.now();
    if (++zygote.clones > this.#limits.clones || performance.now() - zygote.madeAt > this.#limits.ageMs) {
      void this.drop(id).then(async () => this.make(snapshot));
      return undefined;
    }
    try {
      return await cloneUnclaimedVm(this.#opts.context, snapshot, zygote.child, opts);
    } catch (error) {
      this.#opts.onError(`A child of ${snapshot.manifest.tag} could not be cloned, and is restored: ${messageOf(error)}`);
      // not added to #refused: the clone may have failed because of its own limits
      if (this.#ready.get(id) === zygote) await this.drop(id);
      return undefined;
    }
  }

  /** Ends the zygote of a snapshot that is removed, or a zygote that no longer works */
  async drop(id: string): Promise<void> {
    await this.#making.get(id);
    const zygote = this.#ready.get(id);
    this.#ready.delete(id);
    if (zygote) await discardHeldVm(zygote.child);
  }

  /** Drops all state of a removed snapshot */
  async forget(id: string): Promise<void> {
    await this.drop(id);
    this.#forks.delete(id);
    this.#refused.delete(id);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...new Set([...this.#making.keys(), ...this.#ready.keys()])].map(async (id) => this.drop(id)));
  }

  #canHave(snapshot: Snapshot): boolean {
    if (this.#closed || this.#refused.has(snapshot.manifest.id)) return false;
    return canBeCloned(this.#opts.context.engine, snapshot);
  }

  async #make(snapshot: Snapshot): Promise<void> {
    const { id, tag } = snapshot.manifest;
    const { engine } = this.#opts.context;
    let child: UnclaimedVm | undefined;
    try {
      child = await startUnclaimedVm(this.#opts.context, snapshot, "run", { id: newId("zy"), isZygote: true });
      const { vm, agent } = child;
      await Promise.race([rehearse(vm.agentSocket, agent, snapshot, child.id), failOnExit(child)]);
      await vm.pause();
      vm.detach();
      await engine.hold(vm);
    } catch (error) {
      this.#refused.set(id, `${tag}: ${messageOf(error)}`);
      if (child) await discardUnclaimedVm(child);
      return;
    }
    await this.#add(id, child, { bytes: await memoryOf(child.vm.pid), isCopy: false });
  }

  /**
   * Takes a copy of a branch's source, held by the engine, as the zygote of the branch. `bytes` is the memory that it may come
   * to have for itself
   */
  async adopt({ manifest: { id } }: Snapshot, held: HeldVm, bytes: number): Promise<void> {
    await this.#add(id, held, { bytes, isCopy: true });
    const expire = setInterval(() => {
      const zygote = this.#ready.get(id);
      if (zygote?.child === held && performance.now() - zygote.usedAt < this.#limits.idleMs) return;
      clearInterval(expire);
      if (zygote?.child === held) void this.drop(id);
    }, this.#limits.idleMs / IDLE_CHECKS).unref();
  }

  /** The copy of a branch's source, as it was when the snapshot was taken */
  copyFor(id: string): Vm | undefined {
    const zygote = this.#ready.get(id);
    return zygote?.isCopy ? zygote.child.vm : undefined;
  }

  async #add(id: string, child: HeldVm, { bytes, isCopy }: Pick<Zygote, "bytes" | "isCopy">): Promise<void> {
    const now = performance.now();
    const zygote = { child, bytes, isCopy, clones: 0, madeAt: now, usedAt: now };
    if (this.#closed || this.#ready.has(id)) return discardHeldVm(child);
    this.#ready.set(id, zygote);
    // a zygote that ended by itself must not be used again
    void child.vm.exited.then(async () => {
      if (this.#ready.get(id) === zygote) await this.drop(id);
    });
    await this.#evict();
  }

  /** Ends the least recently used zygotes first */
  async #evict(): Promise<void> {
    const all = [...this.#ready].toSorted(([, a], [, b]) => b.usedAt - a.usedAt);
    let bytes = 0;
    for (const [at, [id, zygote]] of all.entries()) {
      bytes += zygote.bytes;
      if (at > 0 && bytes > this.#limits.memoryBytes) await this.drop(id);
    }
  }
}

async function failOnExit({ vm }: UnclaimedVm): Promise<never> {
  const exit = await vm.exited;
  throw new Error(`the VMM ended (${endingOf(exit)})${outputOf(exit)}`);
}

async function memoryOf(pid: number): Promise<number> {
  try {
    const rollup = await readFile(`/proc/${pid}/smaps_rollup`, "utf8");
    return Number(/^Pss: +(\d+) kB/m.exec(rollup)?.[1] ?? 0) * 1024;
  } catch (error) {
    // the process has just ended
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || (error as NodeJS.ErrnoException).code === "ESRCH") return 0;
    throw error;
  }
}
