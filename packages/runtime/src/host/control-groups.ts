// Host limits per VM: one control group for each VM that has any.

import { createHash } from "node:crypto";
import { access, mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { diskOf } from "./block-device.ts";
import {
  giveOn,
  groupOf,
  HOST_PLACES,
  lookAtOwnGroup,
  openOwnGroup,
  type Controller,
  type GroupPlaces,
  type OwnGroup,
} from "./own-group.ts";

/** null: no limit */
export type HostLimits = {
  memoryMiB: number | null;
  /** CPU time, in number of CPUs */
  cpus: number | null;
  /** relative share of CPU time when CPUs are contended; 100 is the default */
  cpuWeight: number | null;
  /** number of threads and processes */
  pids: number | null;
  /** 10^6 bytes per second, for reading and for writing */
  ioMBps: number | null;
};

export const NO_LIMITS: HostLimits = { memoryMiB: null, cpus: null, cpuWeight: null, pids: null, ioMBps: null };

const CONTROLLER_OF: Record<keyof HostLimits, Controller> = {
  memoryMiB: "memory",
  cpus: "cpu",
  cpuWeight: "cpu",
  pids: "pids",
  ioMBps: "io",
};

const HOW =
  "Run forkd where control groups are delegated to it: as a systemd service with Delegate=yes, or by 'systemd-run --user --scope -p Delegate=yes forkd up'. " +
  "An ordinary user gets cpu and io with Delegate= in user@.service.";

const CPU_PERIOD_US = 100_000;
const REMOVE_ATTEMPTS = 50;
const REMOVE_POLL_MS = 20;

/** The group of one VM */
export type VmGroup = {
  dir: string;
  /** whether the kernel ended a process of the group for exceeding its memory limit */
  isOutOfMemory: () => Promise<boolean>;
  /** removes the group after the VM has ended */
  remove: () => Promise<void>;
};

/** Which limits can be applied, and why others cannot */
export type Applicable = { limits: (keyof HostLimits)[]; reason: string | null };

export type ControlGroupsOptions = {
  /** the store: its disk is limited, and the names of the groups contain its hash */
  home: string;
  /** processes whose children also belong to this daemon: the warden */
  parents: () => Promise<number[]>;
  places?: GroupPlaces;
  /** for tests: removes a group in place of rmdir */
  removeGroup?: (dir: string) => Promise<void>;
};

export class ControlGroups {
  readonly #opts: Required<ControlGroupsOptions>;
  /** prefix of this store's groups: another daemon may have groups in the same parent */
  readonly #name: string;

  constructor(opts: ControlGroupsOptions) {
    this.#opts = { places: HOST_PLACES, removeGroup: rmdir, ...opts };
    this.#name = `forkd-${createHash("sha256").update(opts.home).digest("hex").slice(0, 12)}`;
  }

  async applicable(): Promise<Applicable> {
    const { controllers, reason } = await this.#look();
    const names = Object.keys(CONTROLLER_OF) as (keyof HostLimits)[];
    const disk = controllers.includes("io") ? await this.#disk() : null;
    const limits = names.filter((name) => controllers.includes(CONTROLLER_OF[name]) && (name !== "ioMBps" || disk !== null));
    return { limits, reason: reason ?? (disk === null ? `${this.#opts.home} lies on no single disk` : null) };
  }

  /** Throws LIMIT_UNAVAILABLE for limits that cannot be applied; has no side effect */
  async check(limits: HostLimits, nameOf: (limit: keyof HostLimits) => string = String): Promise<void> {
    const wanted = wantedOf(limits);
    if (wanted.length === 0) return;
    const { limits: possible, reason } = await this.applicable();
    const missing = wanted.filter((name) => !possible.includes(name));
    if (missing.length === 0) return;
    const names = missing.map(nameOf);
    throw new ForkdError("LIMIT_UNAVAILABLE", `Cannot apply ${names.join(", ")}: ${reason}.`, {
      hint: HOW,
      details: { limits: names, controllers: [...new Set(missing.map((name) => CONTROLLER_OF[name]))] },
    });
  }

  /** Makes a group with these limits before its VM starts; undefined when there are no limits */
  async make(id: string, limits: HostLimits): Promise<VmGroup | undefined> {
    if (!hasLimits(limits)) return undefined;
    await this.check(limits);
    const own = await this.#look();
    const group = this.#group(join(own.path ?? "", this.#name, id));
    try {
      await this.#open(own);
      await mkdir(group.dir);
      await this.#apply(group.dir, limits);
      return group;
    } catch (error) {
      await group.remove();
      throw new ForkdError("LIMIT_UNAVAILABLE", `Cannot apply limits: ${messageOf(error)}.`, { cause: error, hint: HOW });
    }
  }

  /** The group of an adopted VM. Sets its limits again, because a service manager may have reset them */
  async found(id: string, pid: number, limits: HostLimits): Promise<VmGroup | undefined> {
    if (!hasLimits(limits)) return undefined;
    const dir = await groupOf(pid, this.#opts.places);
    if (dir === null || basename(dir) !== id) throw new ForkdError("LIMIT_UNAVAILABLE", `Sandbox ${id} is not in its control group.`);
    const own = await this.#look();
    // Otherwise a daemon in another control group started the VM, and its group is unchanged.
    if (own.path === dirname(dirname(dir))) await this.#open(own);
    await this.#apply(dir, limits);
    return this.#group(dir);
  }

  /** Removes the groups of VMs that have ended */
  async sweep(keep: ReadonlySet<string>): Promise<void> {
    const { path } = await this.#look();
    if (path === null) return;
    const all = join(path, this.#name);
    for (const name of await groupsIn(all)) {
      if (keep.has(name)) continue;
      const dir = join(all, name);
      await writeIfThere(join(dir, "cgroup.kill"), "1");
      await this.#group(dir).remove();
    }
  }

  async #open({ path, controllers }: OwnGroup): Promise<void> {
    if (path === null) throw new Error("there is no control group to use");
    await openOwnGroup(path, controllers);
    const all = join(path, this.#name);
    await mkdir(all, { recursive: true });
    await giveOn(all, controllers);
  }

  async #look(): Promise<OwnGroup> {
    return lookAtOwnGroup(this.#opts.places, this.#opts.parents);
  }

  async #disk(): Promise<string | null> {
    return diskOf(this.#opts.home, this.#opts.places.blocks);
  }

  async #apply(dir: string, limits: HostLimits): Promise<void> {
    const { memoryMiB, cpus, cpuWeight, pids, ioMBps } = limits;
    const put = async (file: string, value: string): Promise<void> => writeFile(join(dir, file), value);
    if (memoryMiB !== null) {
      // Without this limit, memory above the limit is swapped, and the VM becomes very slow.
      await writeIfThere(join(dir, "memory.swap.max"), "0");
      await put("memory.max", String(memoryMiB * 1024 * 1024));
    }
    if (cpus !== null) await put("cpu.max", `${Math.max(1000, Math.round(cpus * CPU_PERIOD_US))} ${CPU_PERIOD_US}`);
    if (cpuWeight !== null) await put("cpu.weight", String(cpuWeight));
    if (pids !== null) await put("pids.max", String(pids));
    if (ioMBps !== null) {
      const bytes = Math.round(ioMBps * 1_000_000);
      await put("io.max", `${await this.#disk()} rbps=${bytes} wbps=${bytes}`);
    }
  }

  #group(dir: string): VmGroup {
    return {
      dir,
      isOutOfMemory: async () => Number(/^oom_kill (\d+)$/m.exec(await readIfThere(join(dir, "memory.events")))?.[1] ?? 0) > 0,
      remove: async () => removeWhenEmpty(dir, this.#opts.removeGroup),
    };
  }
}

export function hasLimits(limits: HostLimits): boolean {
  return wantedOf(limits).length > 0;
}

function wantedOf(limits: HostLimits): (keyof HostLimits)[] {
  return (Object.keys(CONTROLLER_OF) as (keyof HostLimits)[]).filter((name) => limits[name] !== null);
}

/** A reaped process leaves its group a moment later */
async function removeWhenEmpty(dir: string, remove: (dir: string) => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await remove(dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || attempt === REMOVE_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, REMOVE_POLL_MS));
    }
  }
}

async function groupsIn(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir, { withFileTypes: true })).filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

async function writeIfThere(path: string, value: string): Promise<void> {
  try {
    await access(path);
  } catch {
    return;
  }
  await writeFile(path, value);
}

async function readIfThere(path: string): Promise<string> {
  return readFile(path, "utf8").catch(() => "");
}
