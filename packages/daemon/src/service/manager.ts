// The service layer: policy, state and journal on top of the runtime.

import { mkdir } from "node:fs/promises";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import type { GcResult, Status } from "../api/daemon.ts";
import type { SandboxStats } from "../api/sandbox.ts";
import type { Tree } from "../api/snapshot.ts";
import { messageOf } from "@forkd/runtime/errors";
import type { Home } from "@forkd/runtime/home";
import { freeBytes } from "@forkd/runtime/host/free-space";
import { Runtime } from "@forkd/runtime/runtime";
import { splitBind } from "../config.ts";
import type { NetworkOptions, Owner } from "@forkd/runtime/egress/network";
import type { ConnectionEntry } from "../observe/audit.ts";
import type { Levels } from "../observe/metrics.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { lockFile, type Db } from "../store/db.ts";
import { Cordon } from "../store/cordon.ts";
import { EventLog } from "../store/events.ts";
import { MoveStore } from "../store/moves.ts";
import { keepReserve, releaseReserve } from "../store/reserve.ts";
import { tablesOf } from "../store/tables.ts";
import { isolationOf } from "@forkd/runtime/vmm/driver";
import { adoptAll } from "./adoption.ts";
import { Branches } from "./branches.ts";
import { EVERY_PROJECT, isOf, projectOf, shownName } from "../store/project-names.ts";
import type { Projects } from "../store/projects.ts";
import { ownCaller, type Viewer } from "./caller.ts";
import type { Core, Log, Meter, Settings } from "./core.ts";
import { Moves } from "./moves.ts";
import { Files } from "./files.ts";
import { collectGarbage } from "./gc.ts";
import { Hub } from "./hub.ts";
import { Images } from "./images.ts";
import { Contexts } from "./contexts.ts";
import { Execution } from "./execution.ts";
import { limitName } from "./limit-fields.ts";
import { availableMemoryMiB, Limits } from "./limits.ts";
import { connectionEntry, Networks } from "./networks.ts";
import { Lineage } from "./lineage.ts";
import { Packs } from "./packs.ts";
import { Ports } from "./ports.ts";
import { Processes } from "./processes.ts";
import { Quotas } from "./quotas.ts";
import { Reaper } from "./reaper.ts";
import { Registry, type Entry } from "./registry.ts";
import { Sandboxes, type Usable } from "./sandboxes.ts";
import { Snapshots } from "./snapshots.ts";
import { privateBytesOf } from "./stats.ts";
import { treeOf } from "./tree.ts";
import { Suspension } from "./suspension.ts";
import { Workspaces } from "./workspaces.ts";

const MIB = 1024 * 1024;

export type ManagerOptions = {
  home: Home;
  /** code of this node */
  node: string;
  db: Db;
  settings: Settings;
  parallelism?: number | undefined;
  guestKernel?: string | undefined;
  meter: Meter;
  log: Log;
  version: string;
  projects: Projects;
  /** limit of live sandboxes of the token with this name; null: none */
  maxSandboxesOf: (principal: string) => number | null;
  /** logs the connections of sandboxes */
  audit?: ((entry: ConnectionEntry) => void) | undefined;
};

type Public<T> = T extends (...args: never[]) => unknown ? T : { [K in keyof T]: T[K] };

/** Public members of the manager and its parts, so that tests can pass a manager without VMs */
export type ManagerApi = { [K in keyof Manager]: Public<Manager[K]> };

export class Manager {
  readonly events: EventLog;
  readonly sandboxes: Sandboxes;
  readonly networks: Networks;
  readonly execution: Execution;
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
  readonly moves: Moves;
  readonly quotas: Quotas;
  readonly #core: Core;
  readonly #registry: Registry;
  readonly #limits: Limits;
  readonly #lineage: Lineage;
  #reaper: Reaper | undefined;
  #lock: DisposableStack | undefined;
  readonly #version: string;
  #lastUse = Date.now();

  readonly #cordon: Cordon;

  private constructor(core: Core, parts: { registry: Registry; version: string; cordon: Cordon; store: MoveStore }) {
    const { registry, version, cordon, store } = parts;
    this.#core = core;
    this.#cordon = cordon;
    this.#registry = registry;
    this.#version = version;
    this.events = core.events;
    this.#limits = new Limits(core, registry);
    this.#lineage = new Lineage(core, registry);
    this.quotas = core.quotas;
    this.images = new Images(core);
    this.snapshots = new Snapshots(core, { lineage: this.#lineage, images: this.images });
    const lineage = this.#lineage;
    const collectAfter = async (id: string): Promise<void> => {
      this.#lastUse = Date.now();
      await lineage.collectAfter(id);
    };
    const forkable: Usable["forkable"] = async (reference, viewer) => this.snapshots.forkable(reference, viewer);
    const usable = { forkable, collectAfter };
    const wake = async (entry: Entry): Promise<void> => this.suspension.wake(entry);
    this.sandboxes = new Sandboxes(core, { registry, limits: this.#limits, snapshots: usable, wake });
    this.networks = new Networks(core, { registry, sandboxes: this.sandboxes });
    this.execution = new Execution({ sandboxes: this.sandboxes, registry, meter: core.meter });
    this.contexts = new Contexts(this.sandboxes);
    this.ports = new Ports({ sandboxes: this.sandboxes, registry });
    this.processes = new Processes(this.sandboxes);
    this.files = new Files(this.sandboxes);
    const basic = { registry, sandboxes: this.sandboxes, snapshots: this.snapshots, lineage };
    this.branches = new Branches(core, basic);
    this.packs = new Packs(core, basic);
    this.hub = new Hub(core, this.packs);
    this.workspaces = new Workspaces(core, { ...basic, branches: this.branches });
    this.suspension = new Suspension(core, { ...basic, branches: this.branches, limits: this.#limits });
    const { suspension, workspaces } = this;
    this.moves = new Moves(core, { ...basic, store, suspension, workspaces, limits: this.#limits });
  }

  /** Starts the runtime and recovers the state of an earlier daemon */
  static async start(opts: ManagerOptions): Promise<Manager> {
    const { home, node, db, settings, meter, log, maxSandboxesOf } = opts;
    // the store has its own lock, but two stores can share the run folder
    using lock = new DisposableStack();
    await mkdir(home.run, { recursive: true, mode: 0o700 });
    lock.use(lockFile(join(home.run, "daemon.lock")));
    await releaseReserve(home.root);
    const tables = tablesOf(db);
    const events = new EventLog(db);
    const quotas = new Quotas(db, opts.projects);
    let manager: Manager | undefined;
    let registry: Registry | undefined;
    const runtime = await Runtime.start({
      home,
      node,
      life: "durable",
      parallelism: opts.parallelism,
      guestKernel: opts.guestKernel,
      network: networkOptions(opts, quotas, () => registry),
      confinement: settings.confinement,
      isolation: settings.isolation,
      accelerator: settings.accelerator,
      hugepagesDir: settings.hugepagesDir,
      onWarning: (message) => log.warn({}, message),
      onGone: (sandbox: Sandbox) => noted(log, () => manager?.sandboxes.gone(sandbox)),
      onLost: (why) => {
        log.error({ why }, "the warden has ended, and all sandboxes with it");
        noted(log, () => manager?.sandboxes.allLost(`the warden has ended: ${why}`));
      },
    });
    if (runtime.confinement.kind === "none")
      log.warn({ confinement: settings.confinement, reason: runtime.confinement.reason }, "VMMs cannot be confined on this host");
    if (runtime.accelerator.accelerator === "tcg")
      log.warn(
        { isolation: settings.isolation, reason: runtime.accelerator.reason },
        "KVM does not work: emulation is not a security boundary",
      );
    try {
      const cordon = new Cordon(db);
      const store = new MoveStore(db);
      const core: Core = { home, node, db, tables, events, runtime, quotas, cordon, settings, meter, log, maxSandboxesOf };
      registry = new Registry({ db, tables, events, quotas, moves: store });
      manager = new Manager(core, { registry, version: opts.version, cordon, store });
      const found = await adoptAll(core, registry);
      if (found.adopted + found.lost + found.late + found.ended > 0) log.info(found, "adopted the state of an earlier daemon");
      await manager.#settle();
      const { sandboxes, suspension, snapshots } = manager;
      manager.#reaper = new Reaper(core, { registry, sandboxes, suspension, snapshots });
      events.append({ type: "daemon.started", project: null });
      await keepReserve(home.root);
      manager.#lock = lock.move();
      return manager;
    } catch (error) {
      await runtime.leave();
      throw error;
    }
  }

  /** Blocks connections of sandboxes to the daemon's own listener */
  servesAt(bind: string): void {
    const { host, port } = splitBind(bind);
    this.#core.runtime.network.reserve(host, port);
  }

  /** A cordoned node takes no forks, also after a restart */
  cordon(isCordoned: boolean): void {
    this.#cordon.set(isCordoned);
  }

  /** The daemon ends soon, and its VMs with it: they move to other nodes within the time, else they are suspended */
  async leave(opts: { withinMs: number; signal: AbortSignal }): Promise<void> {
    this.#cordon.isLeaving = true;
    await this.moves.leaveAll(opts);
  }

  /** Time of the last use (ms); null: sandboxes, branches or pooled VMs exist */
  get idleSince(): number | null {
    const { pool } = this.#core.runtime;
    const busy = this.#registry.live.length > 0 || this.branches.inFlight > 0 || pool.waiting > 0;
    return busy ? null : this.#lastUse;
  }

  async status(viewer: Viewer): Promise<Omit<Status, "pid" | "uptime_secs" | "socket" | "bind" | "tls" | "proxy_url">> {
    const { home, node, runtime, settings } = this.#core;
    const { accelerator, reason } = runtime.accelerator;
    const { limits, reason: limitsReason } = await runtime.groups.applicable();
    const tags = [...(await runtime.snapshots.tags()).keys()];
    return {
      version: this.#version,
      node,
      home: home.root,
      accelerator,
      accelerator_reason: reason,
      isolation: isolationOf(accelerator),
      isolation_policy: settings.isolation,
      confinement: runtime.confinement.kind,
      confinement_policy: settings.confinement,
      confinement_reason: runtime.confinement.reason,
      engine: runtime.engine.description,
      sandboxes: this.#registry.live.filter(({ row }) => isOf(row.project, viewer.project)).length,
      snapshots: tags.filter((tag) => isOf(projectOf(tag), viewer.project)).length,
      images: (await this.images.list(viewer)).length,
      cordoned: this.#cordon.isSet,
      leaving: this.#cordon.isLeaving,
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
      disk: { free_mib: Math.floor((await freeBytes(home.root)) / MIB) },
      load: (loadavg()[0] ?? 0) / availableParallelism(),
    };
  }

  async gauges(): Promise<Levels> {
    const { runtime } = this.#core;
    const live = this.#registry.live;
    const measured = live.map(async ({ row }): Promise<[string, number]> => [row.id, await privateBytesOf(row.pid)]);
    // skip sandboxes that end while they are measured
    const privateBytes = (await Promise.allSettled(measured)).flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
    return {
      sandboxes: live.length,
      guestBytes: live.reduce((sum, { row }) => sum + row.memory_mib * 1024 * 1024, 0),
      snapshots: (await runtime.snapshots.tags()).size,
      branchesInFlight: this.branches.inFlight,
      poolWaiting: runtime.pool.waiting,
      poolSize: runtime.pool.size,
      privateBytes: new Map(privateBytes),
      projectOf: new Map(live.map(({ row }) => [row.id, row.project])),
      quotas: this.quotas.uses(),
    };
  }

  async tree(viewer: Viewer): Promise<Tree> {
    return treeOf(this.#core, this.#registry, viewer);
  }

  async stats(viewer: Viewer): Promise<SandboxStats[]> {
    return this.sandboxes.allStats(viewer);
  }

  /** Throws IN_USE with what the project owns, tokens included */
  async refuseOwner(project: string, tokens: readonly string[]): Promise<void> {
    const { runtime, tables } = this.#core;
    const own = (stored: Iterable<string>): string[] =>
      [...stored].filter((name) => projectOf(name) === project).map((name) => shownName(name, project));
    const images = (await runtime.images.list()).flatMap(({ names }) => names);
    const rows = tables.snapshots.where("project", project).map(({ tag }) => tag);
    const snapshots = [...new Set([...rows, ...(await runtime.snapshots.tags()).keys()])];
    this.quotas.refuseOwner(project, { snapshots: own(snapshots), images: own(images), tokens });
    for (const entry of this.#registry.of({ project }))
      this.#registry.drop(entry, { type: "sandbox.deleted", reason: "its project was removed" });
    this.quotas.forget(project);
  }

  async gc({ dryRun }: { dryRun: boolean }): Promise<GcResult> {
    return collectGarbage(this.#core, this.#lineage, dryRun);
  }

  /** Sandboxes keep running unless `killSandboxes` is set; no work is accepted afterwards */
  async stop({ killSandboxes }: { killSandboxes: boolean }): Promise<void> {
    this.#reaper?.stop();
    await this.branches.settled();
    this.#core.db.eventually(() => this.events.append({ type: "daemon.stopping", project: null }));
    if (killSandboxes) await this.sandboxes.removeMany("all", ownCaller("daemon", EVERY_PROJECT));
    await this.#lineage.settled();
    await this.#core.runtime.leave();
    // a restart of the host may follow, which loses unsynced data
    await this.snapshots.syncAll();
    this.#lock?.dispose();
  }

  /** Slow start-up work that must not delay the first request */
  async #settle(): Promise<void> {
    const { runtime, tables, log } = this.#core;
    await this.#lineage.collect();
    void this.snapshots.syncAll().catch((error: unknown) => log.error({ err: error }, `snapshots are not on disk: ${messageOf(error)}`));
    void this.moves.recover().catch((error: unknown) => log.error({ err: error }, `moves were not ended: ${messageOf(error)}`));
    void this.snapshots
      .measureAll()
      .catch((error: unknown) => log.error({ err: error }, `snapshots were not measured: ${messageOf(error)}`));
    for (const { tag, pool } of tables.snapshots.all().filter((row) => row.pool > 0 && row.status === "ready")) {
      const fill = async (): Promise<void> => runtime.keepReady(await runtime.snapshots.get(tag), pool);
      fill().catch((error: unknown) => log.error({ err: error, tag }, `a pool could not be filled: ${messageOf(error)}`));
    }
  }
}

function networkOptions(
  { settings, meter, audit }: ManagerOptions,
  quotas: Quotas,
  registryOf: () => Registry | undefined,
): NetworkOptions {
  const entryOf = (id: string | null): Entry | undefined => (id === null ? undefined : registryOf()?.byId(id));
  // a sandbox that is being forked is not in the registry yet
  const ownerOf = ({ sandbox, snapshot }: Owner): string => entryOf(sandbox)?.row.project ?? projectOf(snapshot);
  return {
    groupOf: (owner) => ownerOf({ sandbox: owner, snapshot: owner }),
    maySend: (owner, bytes) => quotas.send(ownerOf(owner), bytes),
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

/** Logs a failed write; the next start detects the ended sandbox */
function noted(log: Log, work: () => void): void {
  try {
    work();
  } catch (error) {
    log.error({ err: error }, `the end of a sandbox could not be journaled: ${messageOf(error)}`);
  }
}
