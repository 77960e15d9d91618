// Policy, state and journal over the runtime: everything the API can do.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { GcResult, Status } from "../api/daemon.ts";
import type { SandboxStats } from "../api/sandbox.ts";
import type { Tree } from "../api/snapshot.ts";
import { messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { Runtime } from "../sandbox/runtime.ts";
import { splitBind } from "../config.ts";
import type { NetworkOptions } from "../net/network.ts";
import type { ConnectionEntry } from "../observe/audit.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lockFile, type Db } from "../store/db.ts";
import { EventLog } from "../store/events.ts";
import { keepReserve, releaseReserve } from "../store/reserve.ts";
import { tablesOf } from "../store/tables.ts";
import { adoptAll } from "./adoption.ts";
import { Branches } from "./branches.ts";
import { ownCaller } from "./caller.ts";
import type { Core, Log, Meter, Settings } from "./core.ts";
import { Files } from "./files.ts";
import { collectGarbage } from "./gc.ts";
import { Hub } from "./hub.ts";
import { Images } from "./images.ts";
import { Contexts } from "./contexts.ts";
import { Inside } from "./inside.ts";
import { limitName } from "./limit-fields.ts";
import { availableMemoryMiB, Limits } from "./limits.ts";
import { connectionEntry, Networks } from "./networks.ts";
import { Lineage } from "./lineage.ts";
import { Packs } from "./packs.ts";
import { Ports } from "./ports.ts";
import { Processes } from "./processes.ts";
import { Reaper } from "./reaper.ts";
import { Registry, type Entry } from "./registry.ts";
import { Sandboxes } from "./sandboxes.ts";
import { Snapshots } from "./snapshots.ts";
import { privateBytesOf } from "./stats.ts";
import { treeOf } from "./tree.ts";
import { Suspension } from "./suspension.ts";
import { Workspaces } from "./workspaces.ts";

export type ManagerOptions = {
  home: Home;
  db: Db;
  settings: Settings;
  parallelism?: number | undefined;
  guestKernel?: string | undefined;
  meter: Meter;
  log: Log;
  version: string;
  /** writes down what sandboxes connect to */
  audit?: ((entry: ConnectionEntry) => void) | undefined;
};

/** What is measured at the moment somebody asks */
export type Gauges = {
  sandboxes: number;
  snapshots: number;
  branchesInFlight: number;
  poolWaiting: number;
  poolSize: number;
  /** of each sandbox's VMM, by sandbox */
  privateBytes: Map<string, number>;
};

export class Manager {
  readonly events: EventLog;
  readonly sandboxes: Sandboxes;
  readonly networks: Networks;
  readonly inside: Inside;
  readonly contexts: Contexts;
  readonly ports: Ports;
  readonly processes: Processes;
  readonly files: Files;
  readonly branches: Branches;
  readonly snapshots: Snapshots;
  readonly packs: Packs;
  readonly hub: Hub;
  readonly images: Images;
  readonly workspaces: Workspaces;
  readonly suspension: Suspension;
  readonly #core: Core;
  readonly #registry: Registry;
  readonly #limits: Limits;
  readonly #lineage: Lineage;
  #reaper: Reaper | undefined;
  #lock: DisposableStack | undefined;
  readonly #version: string;
  #lastUse = Date.now();

  private constructor(core: Core, registry: Registry, version: string) {
    this.#core = core;
    this.#registry = registry;
    this.#version = version;
    this.events = core.events;
    this.#limits = new Limits(core.settings, registry);
    this.#lineage = new Lineage(core, registry);
    this.snapshots = new Snapshots(core, this.#lineage);
    const lineage = this.#lineage;
    const collectAfter = async (id: string): Promise<void> => {
      this.#lastUse = Date.now();
      await lineage.collectAfter(id);
    };
    const usable = { usable: async (tag: string) => this.snapshots.usable(tag), collectAfter };
    const wake = async ({ row }: Entry): Promise<unknown> => this.suspension.resume(row.id, ownCaller(row.created_by));
    this.sandboxes = new Sandboxes(core, { registry, limits: this.#limits, snapshots: usable, wake });
    this.networks = new Networks(core, { registry, sandboxes: this.sandboxes });
    this.inside = new Inside({ sandboxes: this.sandboxes, registry, meter: core.meter });
    this.contexts = new Contexts(this.sandboxes);
    this.ports = new Ports({ sandboxes: this.sandboxes, registry });
    this.processes = new Processes(this.sandboxes);
    this.files = new Files({ sandboxes: this.sandboxes, registry });
    const parts = { registry, sandboxes: this.sandboxes, snapshots: this.snapshots, lineage };
    this.branches = new Branches(core, parts);
    this.packs = new Packs(core, parts);
    this.hub = new Hub(core, this.packs);
    this.images = new Images(core);
    this.workspaces = new Workspaces(core, { ...parts, branches: this.branches });
    this.suspension = new Suspension(core, { ...parts, branches: this.branches });
  }

  /** Starts the runtime and takes over what an earlier daemon left */
  static async start(opts: ManagerOptions): Promise<Manager> {
    const { home, db, settings, meter, log } = opts;
    // the store has its own lock; the run folder may be shared by two stores
    using lock = new DisposableStack();
    await mkdir(home.run, { recursive: true, mode: 0o700 });
    lock.use(lockFile(join(home.run, "daemon.lock")));
    await releaseReserve(home.root);
    const tables = tablesOf(db);
    const events = new EventLog(db);
    let manager: Manager | undefined;
    let registry: Registry | undefined;
    const runtime = await Runtime.start({
      home,
      life: "durable",
      parallelism: opts.parallelism,
      guestKernel: opts.guestKernel,
      network: networkOptions(opts, () => registry),
      confinement: settings.confinement,
      onWarning: (message) => log.warn({}, message),
      onGone: (sandbox: Sandbox) => noted(log, () => manager?.sandboxes.gone(sandbox)),
      onLost: (why) => {
        log.error({ why }, "the process that holds the VMs is gone, and all sandboxes with it");
        noted(log, () => manager?.sandboxes.allLost(`the process that held the VMs is gone: ${why}`));
      },
    });
    if (runtime.confinement.kind === "none")
      log.warn({ confinement: settings.confinement, reason: runtime.confinement.reason }, "VMMs cannot be confined on this host");
    try {
      const core: Core = { home, db, tables, events, runtime, settings, meter, log };
      registry = new Registry({ db, tables, events });
      manager = new Manager(core, registry, opts.version);
      const found = await adoptAll(core, registry);
      if (found.adopted + found.lost + found.ended > 0) log.info(found, "took over what an earlier daemon left");
      await manager.#settle();
      manager.#reaper = new Reaper(core, { registry, sandboxes: manager.sandboxes, suspension: manager.suspension });
      events.append({ type: "daemon.started" });
      await keepReserve(home.root);
      manager.#lock = lock.move();
      return manager;
    } catch (error) {
      await runtime.leave();
      throw error;
    }
  }

  /** No sandbox may connect to where the daemon itself listens */
  servesAt(bind: string): void {
    const { host, port } = splitBind(bind);
    this.#core.runtime.network.reserve(host, port);
  }

  /** null: nothing lives here; else since when that is so (ms) */
  get idleSince(): number | null {
    const { pool } = this.#core.runtime;
    const busy = this.#registry.live.length > 0 || this.branches.inFlight > 0 || pool.waiting > 0;
    return busy ? null : this.#lastUse;
  }

  async status(): Promise<Omit<Status, "pid" | "uptime_secs" | "socket" | "bind" | "tls" | "proxy_url">> {
    const { home, runtime, settings } = this.#core;
    const { accelerator, reason } = runtime.accelerator;
    const { limits, reason: limitsReason } = await runtime.groups.applicable();
    return {
      version: this.#version,
      home: home.root,
      accelerator,
      accelerator_reason: reason,
      isolation: accelerator === "kvm" ? "kvm" : "emulated",
      confinement: runtime.confinement.kind,
      confinement_policy: settings.confinement,
      confinement_reason: runtime.confinement.reason,
      engine: `QEMU ${runtime.qemuVersion}`,
      sandboxes: this.#registry.live.length,
      snapshots: (await runtime.snapshots.tags()).size,
      images: (await runtime.images.list()).length,
      pool_waiting: runtime.pool.waiting,
      branches_in_flight: this.branches.inFlight,
      limits: {
        max_sandboxes: settings.maxSandboxes,
        max_memory_mib: settings.maxMemoryMiB,
        max_disk_mib: settings.maxDiskMiB,
        min_free_mib: settings.minFreeMiB,
        branch_concurrency: settings.branchConcurrency,
      },
      sandbox_limits: { applicable: limits.map(limitName), reason: limitsReason },
      memory: { committed_mib: this.#limits.committedMiB(), available_mib: await availableMemoryMiB() },
    };
  }

  async gauges(): Promise<Gauges> {
    const { runtime } = this.#core;
    const live = this.#registry.live;
    const measured = live.map(async ({ row }): Promise<[string, number]> => [row.id, await privateBytesOf(row.pid)]);
    // one that ends meanwhile has nothing to measure
    const privateBytes = (await Promise.allSettled(measured)).flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
    return {
      sandboxes: live.length,
      snapshots: (await runtime.snapshots.tags()).size,
      branchesInFlight: this.branches.inFlight,
      poolWaiting: runtime.pool.waiting,
      poolSize: runtime.pool.size,
      privateBytes: new Map(privateBytes),
    };
  }

  async tree(): Promise<Tree> {
    return treeOf(this.#core, this.#registry);
  }

  async stats(): Promise<SandboxStats[]> {
    return this.sandboxes.allStats();
  }

  async gc({ dryRun }: { dryRun: boolean }): Promise<GcResult> {
    return collectGarbage(this.#core, this.#lineage, dryRun);
  }

  /** Sandboxes go on unless they are to be ended; nothing is taken after this */
  async stop({ killSandboxes }: { killSandboxes: boolean }): Promise<void> {
    this.#reaper?.stop();
    await this.branches.settled();
    this.events.append({ type: "daemon.stopping" });
    if (killSandboxes) await this.sandboxes.removeMany({ all: true }, { ...NOBODY, principal: "daemon" });
    await this.#lineage.settled();
    await this.#core.runtime.leave();
    // a restart of the host may follow, which takes what is not on disk
    await this.snapshots.syncAll();
    this.#lock?.dispose();
  }

  /** What takes a while and need not be done before the first request */
  async #settle(): Promise<void> {
    const { runtime, tables, log } = this.#core;
    await this.#lineage.collect();
    void this.snapshots.syncAll().catch((error: unknown) => log.error({ err: error }, `snapshots are not on disk: ${messageOf(error)}`));
    for (const { tag, pool } of tables.snapshots.all().filter((row) => row.pool > 0 && row.status === "ready")) {
      const fill = async (): Promise<void> => runtime.pool.resize(await runtime.snapshots.get(tag), pool);
      fill().catch((error: unknown) => log.error({ err: error, tag }, `a pool could not be filled: ${messageOf(error)}`));
    }
  }
}

function networkOptions({ settings, meter, audit }: ManagerOptions, registryOf: () => Registry | undefined): NetworkOptions {
  const entryOf = (id: string | null): Entry | undefined => (id === null ? undefined : registryOf()?.find(id));
  return {
    servers: settings.dnsServers?.split(",") ?? null,
    onConnection: (owner, event, record) => {
      meter.connected(event, { up: event === "ended" ? record.bytesUp : 0, down: event === "ended" ? record.bytesDown : 0 });
      audit?.(connectionEntry(owner, entryOf(owner.sandbox)?.row.created_by ?? null, event, record));
    },
    onSpent: ({ sandbox }, bytes) => {
      const entry = entryOf(sandbox);
      if (entry) registryOf()?.change(entry, { egress_bytes: bytes });
    },
  };
}

const NOBODY = { maxSandboxes: null, requestId: "", signal: new AbortController().signal };

/** What cannot be written down now is found out at the next start; the daemon goes on */
function noted(log: Log, work: () => void): void {
  try {
    work();
  } catch (error) {
    log.error({ err: error }, `the end of a sandbox could not be written down: ${messageOf(error)}`);
  }
}
