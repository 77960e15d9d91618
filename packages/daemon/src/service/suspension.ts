// Suspension of sandboxes: saves memory and disk and ends the VM; resumes with the same identity.

import { exitCodeOf } from "@forkd/runtime/agent/process/exec";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { SandboxInfo } from "../api/sandbox.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { SandboxRow } from "../store/tables.ts";
import { bootId } from "@forkd/runtime/util/boot-id";
import { newId } from "@forkd/runtime/util/id";
import type { Branches } from "./branches.ts";
import { ownCaller, type Caller } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import type { Limits } from "./limits.ts";
import type { Lineage } from "./lineage.ts";
import { movedAway, type Entry, type Registry } from "./registry.ts";
import { sandboxInfo } from "./sandbox-view.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";
import { shortened } from "./saved-state.ts";
import { inheritedShares } from "./shares.ts";
import type { Snapshots } from "./snapshots.ts";

/** Kills all programs in any group or session, except the agent (PID 1) and this shell. Drops caches to save less */
const END_PROGRAMS = "kill -KILL -1 2>/dev/null; sync; echo 3 > /proc/sys/vm/drop_caches";
const END_WITHIN_MS = 60_000;
/** How long the requests that use a sandbox may take before a move cuts them off */
const USES_END_MS = 3000;
const USES_CHECK_MS = 20;

/** `keepMemory` false: ends all programs, like a restart; files are kept */
export type SuspendOptions = { keepMemory?: boolean | undefined };

type Parts = { registry: Registry; sandboxes: Sandboxes; snapshots: Snapshots; branches: Branches; lineage: Lineage; limits: Limits };

export class Suspension {
  readonly #core: Core;
  readonly #parts: Parts;

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  /** Crash-safe: if the daemon dies, the sandbox is either running or saved */
  async suspend(id: string, caller: Caller, opts: SuspendOptions = {}): Promise<SandboxInfo> {
    const entry = this.#parts.registry.get(id, caller);
    await transition(entry, async () => {
      const { state, keep_memory: usual } = entry.row;
      if (state !== "suspended") await this.#fallAsleep(entry, caller, opts.keepMemory ?? usual === 1);
    });
    return sandboxInfo(entry);
  }

  setKeepMemory(id: string, keepMemory: boolean, caller: Caller): void {
    const { registry } = this.#parts;
    const { principal } = caller;
    registry.change(registry.get(id, caller), { keep_memory: keepMemory ? 1 : 0 }, { type: "sandbox.updated", principal });
  }

  /**
   * Keeps the sandbox suspended while the work runs. Afterwards it is as before, unless it has left. Requests for it wait
   * @param work gets the row as it was before
   */
  async away(id: string, caller: Caller, work: (entry: Entry, before: SandboxRow) => Promise<"left" | "stays">): Promise<void> {
    const entry = this.#parts.registry.get(id, caller);
    let before = entry.row;
    let outcome: "left" | "stays" = "stays";
    await transition(entry, async () => {
      before = entry.row;
      if (before.state === "running") await usesEnd(entry);
      if (before.state !== "suspended") await this.#fallAsleep(entry, caller, true);
      entry.isDeparting = true;
      try {
        outcome = await work(entry, before);
      } finally {
        entry.isDeparting = false;
        if (outcome === "stays" && before.state !== "suspended") await this.#wakeUp(entry, caller);
      }
    });
    if (outcome === "stays" && before.state !== "suspended") await this.restore(entry, before, caller);
  }

  /** What a resumption changes and a move must not: the lifetime continues, and a paused sandbox is paused */
  async restore(entry: Entry, { state, expires_at }: Pick<SandboxRow, "state" | "expires_at">, caller: Caller): Promise<void> {
    this.#parts.registry.change(entry, { expires_at });
    if (state === "paused") await this.#parts.sandboxes.pause(entry.row.id, caller);
  }

  /** Resumes a suspended or paused sandbox */
  async resume(id: string, caller: Caller, { keepMemory = true }: SuspendOptions = {}): Promise<SandboxInfo> {
    const entry = this.#parts.registry.get(id, caller);
    await transition(entry, async () => {
      if (entry.row.state !== "suspended") await this.#parts.sandboxes.resume(id, caller);
      else {
        if (!keepMemory) this.#parts.registry.change(entry, { certificate: restarted(entry.row.certificate) });
        await this.#wakeUp(entry, caller);
        if (!keepMemory) await endPrograms(liveOf(entry), caller);
      }
    });
    return sandboxInfo(entry);
  }

  /**
   * Resumes a suspended sandbox on its use. It counts against the limit of the token that created the sandbox: the
   * client that uses it may have no token
   */
  async wake({ row }: Entry): Promise<void> {
    await this.resume(row.id, { ...ownCaller(row.created_by, row.project), maxSandboxes: this.#core.maxSandboxesOf(row.created_by) });
  }

  async #fallAsleep(entry: Entry, caller: Caller, keepMemory: boolean): Promise<void> {
    const { registry, sandboxes, branches, lineage } = this.#parts;
    const { id, snapshot_id: before } = entry.row;
    const sandbox = liveOf(entry);
    this.#parts.limits.checkSuspended(entry.row);
    // a paused guest cannot be captured: its CPUs may have stopped at an unsafe point
    if (entry.row.state === "paused") await sandboxes.resume(id, caller);
    if (!keepMemory) await endPrograms(sandbox, caller);
    await branches.suspendFrom(id, newId("sl"), caller, async ({ manifest }) => {
      const change = {
        state: "suspended",
        snapshot_id: manifest.id,
        expires_at: entry.row.suspended_ttl_secs && nowUnix() + entry.row.suspended_ttl_secs,
        last_active: nowUnix(),
        egress_bytes: sandbox.network.spent,
        ...(keepMemory ? {} : { certificate: restarted(entry.row.certificate) }),
      } satisfies Partial<SandboxRow>;
      this.#core.db.durably(() => registry.change(entry, change, { type: "sandbox.suspended", principal: caller.principal }));
      entry.sandbox = undefined;
    });
    await sandbox.kill();
    await lineage.collectAfter(before);
  }

  async #wakeUp(entry: Entry, caller: Caller): Promise<void> {
    const { sandboxes, snapshots, lineage } = this.#parts;
    const { id, snapshot_id: saved, vcpus, memory_mib: memoryMiB, disk_mib: diskMiB } = entry.row;
    const limits = await sandboxes.possibleLimits({ ...entry.row, isolation: "any" }, entry.row);
    await this.#core.runtime.locks.whileNeeded(saved, async () => {
      const short = await shortened(this.#core, snapshots, { id: saved, newTag: () => newId("sl"), of: id }, caller);
      const snapshot = await this.#core.runtime.snapshots.byId(short?.id ?? saved);
      await sandboxes.admit({ n: 1, vcpus, memoryMiB, diskMiB, caller }, async () => {
        const { env, network, certificate, egress_bytes: spentBytes } = entry.row;
        const { shares } = await inheritedShares(this.#core, snapshot.manifest.id);
        const { machine_id: machineId, boot_id: ownBootId } = certificate.identity;
        const as = { id, machineId, bootId: ownBootId, spentBytes };
        const sandbox = await this.#core.runtime.forkOne(snapshot, {
          env,
          network,
          shares,
          limits,
          as,
          isolation: "any",
          queue: caller.project,
          signal: caller.signal,
        });
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
    // the VM may have exited before the entry referred to it, so its exit event found no sandbox
    if (!sandbox.alive) sandboxes.gone(sandbox);
  }
}

/** Resolves when no request uses the sandbox, or after a while: a stream may last for hours */
async function usesEnd(entry: Entry): Promise<void> {
  const end = Date.now() + USES_END_MS;
  while (entry.uses > 0 && Date.now() < end) await sleep(USES_CHECK_MS);
}

async function endPrograms(sandbox: Sandbox, { signal }: Pick<Caller, "signal">): Promise<void> {
  const code = exitCodeOf(await sandbox.exec(["/bin/sh", "-c", END_PROGRAMS], { timeoutMs: END_WITHIN_MS, signal }));
  if (code !== 0) throw new ForkdError("EXEC_FAILED", `Cannot end the programs of ${sandbox.id}: the guest's shell ended with ${code}.`);
}

/** New boot id, by which programs detect a restart */
function restarted(certificate: SandboxRow["certificate"]): SandboxRow["certificate"] {
  return { ...certificate, identity: { ...certificate.identity, boot_id: randomUUID() } };
}

/** Serializes transitions; a waiting one sees the result of the previous */
async function transition(entry: Entry, work: () => Promise<void>): Promise<void> {
  // the caller of the previous transition gets its failure
  while (entry.transition) await entry.transition.catch(() => undefined);
  if (entry.movedTo !== undefined) throw movedAway(entry.row.id, entry.movedTo);
  entry.transition = work().finally(() => {
    entry.transition = undefined;
  });
  return entry.transition;
}
