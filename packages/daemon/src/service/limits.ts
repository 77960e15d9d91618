// Admission control: refuses sandboxes that exceed a limit before any VM starts.

import { readFile } from "node:fs/promises";
import { ForkdError } from "@forkd/runtime/errors";
import type { Caller } from "./caller.ts";
import type { Core, Settings } from "./core.ts";
import type { Quotas } from "./quotas.ts";
import type { Entry, Registry } from "./registry.ts";
import type { SandboxRow } from "../store/tables.ts";

/** Estimated host memory of a fresh fork: the VMM and the first pages it writes */
const CHILD_MIB = 48;
/** Suspended sandboxes allowed per unit of a token's sandbox limit */
const ASLEEP_PER_PLACE = 10;

export type Admission = {
  n: number;
  vcpus: number;
  memoryMiB: number;
  /** null: no disk */
  diskMiB: number | null;
  caller: Caller;
  /** available memory of the host, if the caller has just read it */
  availableMiB?: number | undefined;
};

/** Resources of one sandbox */
type Place = { principal: string; project: string; vcpus: number; memoryMiB: number; diskMiB: number };

export class Limits {
  readonly #settings: Settings;
  readonly #quotas: Quotas;
  readonly #maxSandboxesOf: Core["maxSandboxesOf"];
  readonly #registry: Registry;
  /** admitted, but not in the registry yet */
  #pending: (Place & { n: number })[] = [];

  constructor(core: Pick<Core, "settings" | "quotas" | "maxSandboxesOf">, registry: Registry) {
    this.#settings = core.settings;
    this.#quotas = core.quotas;
    this.#maxSandboxesOf = core.maxSandboxesOf;
    this.#registry = registry;
  }

  /** Throws LIMIT_REACHED if no further sandbox may be suspended: its saved state uses disk space until it is removed */
  checkSuspended({ created_by: principal, project }: SandboxRow): void {
    this.#quotas.foresee(project, { suspended: 1 });
    const asleep = this.#registry.lasting.filter(({ row }) => row.state === "suspended");
    this.#check("suspended sandboxes", 1, this.#settings.maxSuspended - asleep.length, "suspend");
    const most = this.#maxSandboxesOf(principal);
    if (most === null) return;
    const own = asleep.filter(({ row }) => row.created_by === principal).length;
    this.#check(`suspended sandboxes of token ${principal}`, 1, most * ASLEEP_PER_PLACE - own, "suspend");
  }

  /** Reserves resources for n sandboxes while the work runs. Throws LIMIT_REACHED with the free amount */
  async admit<V>(request: Admission, work: () => Promise<V>): Promise<V> {
    const { n, vcpus, memoryMiB, caller } = request;
    const { principal, project } = caller;
    const diskMiB = request.diskMiB ?? 0;
    const availableMiB = request.availableMiB ?? (await availableMemoryMiB());
    this.#foresee(request);
    const live = this.#live();
    if (caller.maxSandboxes !== null) {
      const own = live.filter(({ principal }) => principal === caller.principal).length;
      this.#check(`sandboxes of token ${caller.principal}`, n, caller.maxSandboxes - own);
    }
    this.#checkHost({ n, memoryMiB, diskMiB, availableMiB });
    // last: a refused request is no fork
    this.#quotas.fork(project, n);
    const place = { principal, project, n, vcpus, memoryMiB, diskMiB };
    this.#pending.push(place);
    try {
      return await work();
    } finally {
      this.#pending = this.#pending.filter((other) => other !== place);
    }
  }

  /** Throws LIMIT_REACHED if this host has no room for the sandbox, which has its place in all quotas already */
  async checkRoom({ memory_mib: memoryMiB, disk_mib: diskMiB }: Pick<SandboxRow, "memory_mib" | "disk_mib">): Promise<void> {
    this.#checkHost({ n: 1, memoryMiB, diskMiB: diskMiB ?? 0, availableMiB: await availableMemoryMiB() });
  }

  #checkHost({ n, memoryMiB, diskMiB, availableMiB }: { n: number; memoryMiB: number; diskMiB: number; availableMiB: number }): void {
    const live = this.#live();
    const { maxSandboxes, maxMemoryMiB, maxDiskMiB, minFreeMiB } = this.#settings;
    this.#check("sandboxes", n, maxSandboxes - live.length);
    if (maxMemoryMiB !== null) this.#check("MiB of guest memory", n * memoryMiB, maxMemoryMiB - this.committedMiB());
    const disks = live.reduce((sum, place) => sum + place.diskMiB, 0);
    if (maxDiskMiB !== null && diskMiB > 0) this.#check("MiB of disks", n * diskMiB, maxDiskMiB - disks);
    const starting = this.#pending.reduce((sum, pending) => sum + pending.n, 0);
    this.#check("MiB of the host's memory", n * CHILD_MIB, availableMiB - minFreeMiB - starting * CHILD_MIB);
  }

  /** The project's quota, with what other requests are about to start */
  #foresee({ n, vcpus, memoryMiB, diskMiB, caller: { project } }: Admission): void {
    const starting = this.#pending.filter((other) => other.project === project);
    const sum = (of: (place: Place) => number): number => starting.reduce((total, place) => total + of(place) * place.n, 0);
    this.#quotas.foresee(project, {
      sandboxes: n + sum(() => 1),
      vcpus: n * vcpus + sum((place) => place.vcpus),
      memory_mib: n * memoryMiB + sum((place) => place.memoryMiB),
      ...(diskMiB === null ? {} : { storage_bytes: 1 }),
    });
  }

  /** Total memory of all guests, live and starting */
  committedMiB(): number {
    return this.#live().reduce((sum, { memoryMiB }) => sum + memoryMiB, 0);
  }

  #live(): Place[] {
    const starting = this.#pending.flatMap(({ n, ...place }) => Array.from({ length: n }, () => place));
    const placeOf = ({ row }: Entry): Place => ({
      principal: row.created_by,
      project: row.project,
      vcpus: row.vcpus,
      memoryMiB: row.memory_mib,
      diskMiB: row.disk_mib ?? 0,
    });
    return [...this.#registry.live.map(placeOf), ...starting];
  }

  #check(what: string, needed: number, free: number, deed = "fork"): void {
    if (needed <= free) return;
    const left = Math.max(0, Math.floor(free));
    throw new ForkdError("LIMIT_REACHED", `Cannot ${deed}: ${needed} ${what} are needed and ${left} are free.`, {
      details: { resource: what, needed, free: left },
    });
  }
}

export async function availableMemoryMiB(): Promise<number> {
  const kib = /^MemAvailable: +(\d+) kB$/m.exec(await readFile("/proc/meminfo", "utf8"))?.[1];
  return kib === undefined ? Number.POSITIVE_INFINITY : Math.floor(Number(kib) / 1024);
}
