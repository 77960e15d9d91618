// A simulated node: its sandboxes, the starts that wait, and its snapshots.

import { makeNode, MODEL } from "./scenario.ts";

import type { Held, NodeFacts, SnapshotFacts } from "@forkd/gateway/placement/facts";
import type { Agenda } from "./agenda.ts";

export type Sandbox = {
  /** the stored snapshot below it; a branch adds a delta */
  snapshot: SnapshotFacts;
  cores: number;
  lifeMs: number;
  /** once it runs */
  endsMs: number;
  gateway: number;
  askedMs: number;
  /** time spent on nodes that refused or did not answer */
  lostMs: number;
  /** a sandbox that a drain moves is not a new fork */
  isMove: boolean;
  state: "starting" | "running" | "ended";
  node: SimNode;
};

type Stored = { miB: number; isPinned: boolean; users: number };

export class SimNode {
  readonly index: number;
  /** as they are now; gateways see copies */
  readonly facts: NodeFacts;
  isAlive = true;
  /** of its life: what an earlier one had begun does not count */
  life = 0;
  receiving = 0;
  sending = 0;
  readonly sandboxes = new Set<Sandbox>();
  /** fetches that wait for one of its places to receive */
  readonly queue: (() => void)[] = [];
  /** what waits for a snapshot that it receives */
  readonly waiting = new Map<string, (() => void)[]>();
  readonly #agenda: Agenda;
  readonly #cores: number;
  readonly #diskMiB: number;
  /** in the order of use, oldest first */
  readonly #stored = new Map<string, Stored>();
  readonly #warm = new Set<string>();
  readonly #holds = new Map<string, Held>();
  readonly #starts: (() => void)[] = [];
  #starting = 0;
  #usedCores = 0;
  #reported: ReadonlyMap<string, Held> | null = null;

  constructor(index: number, agenda: Agenda) {
    const { cores, diskMiB, ...facts } = makeNode(index);
    this.index = index;
    this.#agenda = agenda;
    this.#cores = cores;
    this.#diskMiB = diskMiB;
    this.facts = { ...facts, holds: this.#holds, fetching: new Set() };
  }

  /** A copy for the gateways; the copy of its snapshots is made again only when they have changed */
  report(): NodeFacts {
    const { memory, places, disk } = this.facts;
    this.#reported ??= new Map(this.#holds);
    return {
      ...this.facts,
      memory: { ...memory },
      places: { ...places },
      disk: { ...disk },
      holds: this.#reported,
      fetching: new Set(this.waiting.keys()),
    };
  }

  has(id: string): boolean {
    return this.#stored.has(id);
  }

  /** Whether it accepts so many children: it knows its own state */
  accepts(snapshot: SnapshotFacts, count: number): boolean {
    const { places, memory, disk, cordoned } = this.facts;
    if (!this.isAlive || cordoned) return false;
    if (places.used + count > places.max || memory.freeMiB < count * snapshot.memoryMiB) return false;
    return this.has(snapshot.id) || this.waiting.has(snapshot.id) || disk.freeMiB >= snapshot.diskMiB;
  }

  take(sandbox: Sandbox): void {
    this.sandboxes.add(sandbox);
    this.#count(sandbox, 1);
  }

  release(sandbox: Sandbox): void {
    if (!this.sandboxes.delete(sandbox)) return;
    this.#count(sandbox, -1);
    if (sandbox.state === "running") this.#use(sandbox.snapshot.id, -1);
  }

  /** Starts a child whose snapshot is here; so many at a time as it has processors */
  start(sandbox: Sandbox, done: () => void): void {
    const { life } = this;
    const { id } = sandbox.snapshot;
    this.#use(id, 1);
    const run = (): void => {
      this.#starting++;
      const ms = MODEL.startMs[this.#warm.has(id) ? "warm" : "disk"] * Math.max(1, this.facts.load);
      this.#agenda.in(ms, () => {
        if (life !== this.life) return;
        this.#starting--;
        this.#warmUp(id);
        done();
        this.#starts.shift()?.();
      });
    };
    if (this.#starting < this.#cores) run();
    else this.#starts.push(run);
  }

  /** Stores a snapshot; removes the ones unused for longest if there is no space for it */
  store({ id, diskMiB }: SnapshotFacts, opts: { isPinned: boolean }, onRemoved: (id: string) => void): void {
    this.#stored.set(id, { miB: diskMiB, isPinned: opts.isPinned, users: 0 });
    this.#setHeld(id, "disk");
    let total = 0;
    for (const { miB } of this.#stored.values()) total += miB;
    for (const [old, { miB, isPinned, users }] of this.#stored) {
      if (total <= this.#diskMiB) break;
      if (isPinned || users > 0 || old === id) continue;
      total -= miB;
      this.#stored.delete(old);
      this.#warm.delete(old);
      this.#setHeld(old, null);
      onRemoved(old);
    }
    this.#countDisk();
  }

  /** Everything that runs ends; snapshots stay on its disk */
  die(): Sandbox[] {
    const ended = [...this.sandboxes];
    for (const sandbox of ended) this.release(sandbox);
    this.isAlive = false;
    this.facts.cordoned = true;
    this.life++;
    [this.receiving, this.sending, this.#starting] = [0, 0, 0];
    this.queue.length = 0;
    this.#starts.length = 0;
    this.waiting.clear();
    for (const stored of this.#stored.values()) stored.users = 0;
    for (const id of this.#warm) this.#setHeld(id, "disk");
    this.#warm.clear();
    this.#countDisk();
    return ended;
  }

  heldIds(): Iterable<string> {
    return this.#stored.keys();
  }

  #count({ snapshot, cores }: Sandbox, by: 1 | -1): void {
    this.facts.places.used += by;
    this.facts.memory.freeMiB -= by * snapshot.memoryMiB;
    this.#usedCores += by * cores;
    this.facts.load = this.#usedCores / this.#cores;
  }

  #use(id: string, by: 1 | -1): void {
    const stored = this.#stored.get(id);
    if (!stored) return;
    const wasUsed = stored.users > 0;
    stored.users += by;
    if (by === 1) {
      this.#stored.delete(id);
      this.#stored.set(id, stored);
    }
    if (wasUsed !== stored.users > 0 && !stored.isPinned) this.facts.disk.freeMiB -= by * stored.miB;
  }

  #warmUp(id: string): void {
    if (this.#warm.delete(id)) {
      this.#warm.add(id);
      return;
    }
    this.#warm.add(id);
    this.#setHeld(id, "warm");
    if (this.#warm.size <= MODEL.warmSnapshots) return;
    const [oldest] = this.#warm;
    if (oldest === undefined) return;
    this.#warm.delete(oldest);
    this.#setHeld(oldest, "disk");
  }

  #setHeld(id: string, held: Held | null): void {
    if (held === null) this.#holds.delete(id);
    else this.#holds.set(id, held);
    this.#reported = null;
  }

  /** Free is what no sandbox uses and was not put here at the beginning: the node removes it when it needs the space */
  #countDisk(): void {
    let free = this.#diskMiB;
    for (const { miB, isPinned, users } of this.#stored.values()) if (isPinned || users > 0) free -= miB;
    this.facts.disk.freeMiB = free;
  }
}
