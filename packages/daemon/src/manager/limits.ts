// Whether one more sandbox fits. What does not fit is refused before anything starts.

import { readFile } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import type { Caller } from "./caller.ts";
import type { Settings } from "./core.ts";
import type { Entry, Registry } from "./registry.ts";

/** What a child takes of the host before its guest has done much: the VMM itself and the first pages it writes */
const CHILD_MIB = 48;

export type Admission = {
  n: number;
  memoryMiB: number;
  /** null: none */
  diskMiB: number | null;
  caller: Caller;
  /** what the host has, where that has just been looked up */
  availableMiB?: number | undefined;
};

/** What one sandbox counts for */
type Place = { principal: string; memoryMiB: number; diskMiB: number };

export class Limits {
  readonly #settings: Settings;
  readonly #registry: Registry;
  /** admitted and not yet in the table */
  #pending: (Place & { n: number })[] = [];

  constructor(settings: Settings, registry: Registry) {
    this.#settings = settings;
    this.#registry = registry;
  }

  /** Runs the work with places for n more sandboxes, or throws LIMIT_REACHED with what is free */
  async admit<V>(request: Admission, work: () => Promise<V>): Promise<V> {
    const { n, memoryMiB, caller } = request;
    const diskMiB = request.diskMiB ?? 0;
    const availableMiB = request.availableMiB ?? (await availableMemoryMiB());
    const live = this.#live();
    const { maxSandboxes, maxMemoryMiB, maxDiskMiB, minFreeMiB } = this.#settings;
    this.#check("sandboxes", n, maxSandboxes - live.length);
    if (caller.maxSandboxes !== null) {
      const own = live.filter(({ principal }) => principal === caller.principal).length;
      this.#check(`sandboxes of token ${caller.principal}`, n, caller.maxSandboxes - own);
    }
    if (maxMemoryMiB !== null) this.#check("MiB of guest memory", n * memoryMiB, maxMemoryMiB - this.committedMiB());
    const disks = live.reduce((sum, place) => sum + place.diskMiB, 0);
    if (maxDiskMiB !== null && diskMiB > 0) this.#check("MiB of disks", n * diskMiB, maxDiskMiB - disks);
    const starting = this.#pending.reduce((sum, pending) => sum + pending.n, 0);
    this.#check("MiB of the host's memory", n * CHILD_MIB, availableMiB - minFreeMiB - starting * CHILD_MIB);
    const place = { principal: caller.principal, n, memoryMiB, diskMiB };
    this.#pending.push(place);
    try {
      return await work();
    } finally {
      this.#pending = this.#pending.filter((other) => other !== place);
    }
  }

  /** Sum of the memory of all guests, live and starting */
  committedMiB(): number {
    return this.#live().reduce((sum, { memoryMiB }) => sum + memoryMiB, 0);
  }

  #live(): Place[] {
    const starting = this.#pending.flatMap(({ n, ...place }) => Array.from({ length: n }, () => place));
    const placeOf = ({ row }: Entry): Place => ({ principal: row.created_by, memoryMiB: row.memory_mib, diskMiB: row.disk_mib ?? 0 });
    return [...this.#registry.live.map(placeOf), ...starting];
  }

  #check(what: string, needed: number, free: number): void {
    if (needed <= free) return;
    const left = Math.max(0, Math.floor(free));
    throw new ForkdError("LIMIT_REACHED", `Cannot fork: ${needed} ${what} are needed and ${left} are free.`, {
      details: { resource: what, needed, free: left },
    });
  }
}

export async function availableMemoryMiB(): Promise<number> {
  const kib = /^MemAvailable: +(\d+) kB$/m.exec(await readFile("/proc/meminfo", "utf8"))?.[1];
  return kib === undefined ? Number.POSITIVE_INFINITY : Math.floor(Number(kib) / 1024);
}
