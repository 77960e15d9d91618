// Sandboxes that sleep: saved with memory and disk, without a VM, and woken up as who they were.

import type { SandboxInfo } from "../api/sandbox.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxRow } from "../store/tables.ts";
import { bootId } from "../util/boot-id.ts";
import { newId } from "../util/id.ts";
import type { Branches } from "./branches.ts";
import type { Caller } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";
import type { Entry, Registry } from "./registry.ts";
import { sandboxInfo } from "./sandbox-view.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";
import { shortened } from "./saved-state.ts";
import { inheritedShares } from "./shares.ts";
import type { Snapshots } from "./snapshots.ts";

type Parts = { registry: Registry; sandboxes: Sandboxes; snapshots: Snapshots; branches: Branches; lineage: Lineage };

export class Suspension {
  readonly #core: Core;
  readonly #parts: Parts;

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  /** Whenever the daemon dies, it runs or is saved */
  async suspend(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#parts.registry.get(id);
    await turn(entry, async () => {
      if (entry.row.state !== "suspended") await this.#fallAsleep(entry, caller);
    });
    return sandboxInfo(entry);
  }

  /** Lets one go on that is suspended or paused */
  async resume(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#parts.registry.get(id);
    await turn(entry, async () => {
      if (entry.row.state === "suspended") await this.#wakeUp(entry, caller);
      else await this.#parts.sandboxes.resume(id, caller);
    });
    return sandboxInfo(entry);
  }

  async #fallAsleep(entry: Entry, caller: Caller): Promise<void> {
    const { registry, sandboxes, branches, lineage } = this.#parts;
    const { id, snapshot_id: before } = entry.row;
    const sandbox = liveOf(entry);
    // a guest whose CPUs are stopped cannot be captured at a place where it may be
    if (entry.row.state === "paused") await sandboxes.resume(id, caller);
    await branches.last(id, newId("sl"), caller, async ({ manifest }) => {
      const change = {
        state: "suspended",
        snapshot_id: manifest.id,
        expires_at: null,
        last_active: nowUnix(),
        egress_bytes: sandbox.network.spent,
      } satisfies Partial<SandboxRow>;
      try {
        this.#core.db.durably(() => registry.change(entry, change, { type: "sandbox.suspended", principal: caller.principal }));
      } catch (error) {
        await sandbox.vm.resume();
        throw error;
      }
      entry.sandbox = undefined;
    });
    await sandbox.kill();
    await lineage.collectAfter(before);
  }

  async #wakeUp(entry: Entry, caller: Caller): Promise<void> {
    const { sandboxes, snapshots, lineage } = this.#parts;
    const { id, snapshot_id: saved, memory_mib: memoryMiB, disk_mib: diskMiB } = entry.row;
    const limits = await sandboxes.possibleLimits(entry.row, memoryMiB);
    await lineage.pinned(saved, async () => {
      const short = await shortened(this.#core, snapshots, { id: saved, newTag: () => newId("sl"), of: id }, caller);
      const snapshot = await this.#core.runtime.snapshots.byId(short?.id ?? saved);
      await sandboxes.admit({ n: 1, memoryMiB, diskMiB, caller }, async () => {
        const { env, network, certificate, egress_bytes: spentBytes } = entry.row;
        const { shares } = await inheritedShares(this.#core, snapshot.manifest.id);
        const as = { id, machineId: certificate.identity.machine_id, spentBytes };
        const sandbox = await this.#core.runtime.forkOne(snapshot, { env, network, shares, limits, as, signal: caller.signal });
        await this.#goOn(entry, sandbox, caller);
      });
    });
    if (entry.row.snapshot_id !== saved) await lineage.collectAfter(saved);
  }

  async #goOn(entry: Entry, sandbox: Sandbox, caller: Caller): Promise<void> {
    const { registry, sandboxes } = this.#parts;
    const now = nowUnix();
    const { ttl_secs: ttl } = entry.row;
    const change = {
      state: "running",
      snapshot_id: sandbox.snapshot.manifest.id,
      pid: sandbox.vm.pid,
      start_time: sandbox.vm.startTime,
      boot_id: await bootId(),
      isolation: sandbox.isolation,
      confinement: this.#core.runtime.confinement.kind,
      kernels: sandbox.kernels,
      certificate: sandbox.certificate,
      shares: sandbox.shares.map((share) => ({ ...share })),
      fork_ms: sandbox.forkMs,
      last_active: now,
      expires_at: ttl === null ? null : now + ttl,
    } satisfies Partial<SandboxRow>;
    try {
      registry.change(entry, change, { type: "sandbox.resumed", principal: caller.principal });
    } catch (error) {
      await sandbox.kill();
      throw error;
    }
    entry.sandbox = sandbox;
    entry.lastActive = Date.now();
    // it may have ended before anybody knew whose it is
    if (!sandbox.alive) sandboxes.gone(sandbox);
  }
}

/** One change at a time; who comes second sees what the first one made of it */
async function turn(entry: Entry, work: () => Promise<void>): Promise<void> {
  // whoever turns it hears of a failure
  while (entry.turning) await entry.turning.catch(() => undefined);
  entry.turning = work().finally(() => {
    entry.turning = undefined;
  });
  return entry.turning;
}
