// Sandboxes: create, list, update, pause, end.

import type {
  CreateSandboxes,
  ForkSandbox,
  ForkOutcomes,
  ListSandboxes,
  SandboxInfo,
  SandboxStats,
  Share,
  UpdateSandbox,
} from "../api/sandbox.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { HostLimits } from "@forkd/runtime/host/control-groups";
import { endingOf as vmmEnding } from "@forkd/runtime/sandbox/vmm-end";
import type { ForkOutcome } from "@forkd/runtime/runtime";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { bootId } from "@forkd/runtime/util/boot-id";
import { projectOf, storedName } from "../store/project-names.ts";
import type { Caller, Viewer } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import { Lease } from "./lease.ts";
import { hostLimits, limitName, machineOf, type GivenStart, type Machine } from "./limit-fields.ts";
import { availableMemoryMiB, type Admission, type Limits } from "./limits.ts";
import { policyOf, withoutInward } from "./network-policy.ts";
import { spawnRequest } from "./older-api.ts";
import { hasMetadata, pageOf, type Page } from "./paging.ts";
import { problemOf } from "./problem.ts";
import { afterTransition, movedAway, type Entry, type Registry } from "./registry.ts";
import { allowedShares, inheritedShares } from "./shares.ts";
import { sandboxInfo, sandboxRow, type RowFacts } from "./sandbox-view.ts";
import { sandboxStats } from "./stats.ts";

export type Usable = {
  /** A snapshot that the viewer may fork. Throws SNAPSHOT_NOT_READY, NOT_FOUND or SNAPSHOT_INVALID */
  forkable: (reference: string, viewer: Viewer) => Promise<Snapshot>;
  /** Collects snapshots that are no longer needed after a sandbox of this one has ended */
  collectAfter: (snapshotId: string) => Promise<void>;
};

type Parts = {
  registry: Registry;
  limits: Limits;
  snapshots: Usable;
  /** resumes a suspended sandbox */
  wake: (entry: Entry) => Promise<void>;
};

/** form of a sandbox id; not allowed as a name, because it would hide the sandbox with that id */
const SANDBOX_ID = /^sb-[a-z2-7]{16}$/;

type LeaseOptions = {
  /** the work is part of a suspension; other work waits for its end */
  isTransition?: boolean | undefined;
  /** false: the work only observes the sandbox: it neither resumes it nor resets its idle time */
  isUse?: boolean | undefined;
};

type ForkOptions = Pick<Admission, "availableMiB"> & {
  request: ForkRequest;
  facts: RowFacts;
  caller: Caller;
  remember?: (infos: SandboxInfo[]) => void;
};
type ForkRequest = RowFacts["request"] & Pick<ForkSandbox, "env" | "network"> & { n: number };

export class Sandboxes {
  readonly #core: Core;
  readonly #registry: Registry;
  readonly #limits: Limits;
  readonly #snapshots: Usable;
  readonly #wake: (entry: Entry) => Promise<void>;

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#registry = parts.registry;
    this.#limits = parts.limits;
    this.#snapshots = parts.snapshots;
    this.#wake = parts.wake;
  }

  list(query: ListSandboxes, viewer: Viewer): Page<SandboxInfo> {
    const states = query.state ?? ["running", "paused", "suspended"];
    const wanted = this.#registry
      .of(viewer)
      .filter(({ row }) => states.includes(row.state))
      .filter(({ row }) => query.tag === undefined || row.snapshot_tag === storedName(query.tag, row.project))
      .filter(({ row }) => hasMetadata(row.metadata, query.metadata));
    const keyOf = (entry: Entry): string => `${String(entry.row.created_at_ms).padStart(15, "0")} ${entry.row.id}`;
    // by the fields of the key: to build it in each comparison took half of the time of a long list
    const sorted = wanted.toSorted(({ row: a }, { row: b }) => a.created_at_ms - b.created_at_ms || (a.id < b.id ? -1 : 1));
    const page = pageOf(sorted, keyOf, query);
    return { items: page.items.map(sandboxInfo), nextCursor: page.nextCursor };
  }

  /** Live and suspended sandboxes for a token search, without further fields: unauthenticated clients can trigger it */
  makers(): Pick<SandboxInfo, "id" | "created_by" | "project">[] {
    return this.#registry.lasting.map(({ row }) => row);
  }

  get(id: string, viewer: Viewer): SandboxInfo {
    return sandboxInfo(this.#registry.get(id, viewer));
  }

  /** All or nothing */
  async create(request: CreateSandboxes, caller: Caller): Promise<SandboxInfo[]> {
    this.refuseCordoned();
    // independent, so run both in parallel
    const [{ snapshot, facts }, availableMiB] = await Promise.all([this.#prepare(request, caller), availableMemoryMiB()]);
    return this.fork(snapshot, { request, facts, caller, availableMiB });
  }

  /** One outcome per child */
  async createEach(request: CreateSandboxes, caller: Caller): Promise<ForkOutcomes> {
    this.refuseCordoned();
    const { snapshot, facts } = await this.#prepare(request, caller);
    return this.#limits.admit({ n: request.n, ...sizesOf(snapshot), caller }, async () => {
      const outcomes = await this.#fork(snapshot, request, facts, caller);
      const sandboxes = outcomes.flatMap(({ sandbox }) => sandbox ?? []);
      const answer = (infos: SandboxInfo[]): ForkOutcomes => {
        const byId = new Map(infos.map((info) => [info.id, info]));
        const results = outcomes.map(({ sandbox, error }) => {
          const info = sandbox && byId.get(sandbox.id);
          return info ? { sandbox: info } : { error: problemOf(error ?? gone(sandbox), caller.requestId) };
        });
        return { results };
      };
      let answered: ForkOutcomes = { results: [] };
      await this.#commit(sandboxes, facts, caller, (infos) => {
        answered = answer(infos);
        caller.remember?.(207, answered);
      });
      return answered;
    });
  }

  /** Forks a snapshot; `remember` stores the response of the request */
  async fork(snapshot: Snapshot, opts: ForkOptions): Promise<SandboxInfo[]> {
    const { request, caller, availableMiB } = opts;
    return this.admit({ n: request.n, ...sizesOf(snapshot), caller, availableMiB }, async () => this.forkAdmitted(snapshot, opts));
  }

  /** Throws LIMIT_REACHED, after which a gateway asks another node */
  refuseCordoned(): void {
    if (!this.#core.cordon?.isSet) return;
    throw new ForkdError("LIMIT_REACHED", "Cannot fork: this node is cordoned.", {
      hint: "Fork on another node, or run 'forkd cluster uncordon'.",
      details: { resource: "cordon", needed: 1, free: 0 },
    });
  }

  /** Reserves resources for n sandboxes while the work runs. Throws LIMIT_REACHED */
  async admit<V>(request: Admission, work: () => Promise<V>): Promise<V> {
    return this.#limits.admit(request, work);
  }

  /** Same, within a reservation by admit() */
  async forkAdmitted(snapshot: Snapshot, opts: ForkOptions): Promise<SandboxInfo[]> {
    const { request, facts, caller } = opts;
    const outcomes = await this.#fork(snapshot, request, facts, caller);
    const sandboxes = outcomes.flatMap(({ sandbox }) => sandbox ?? []);
    const failed = outcomes.find(({ error }) => error)?.error ?? sandboxes.filter(({ alive }) => !alive).map(gone)[0];
    if (failed) {
      await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
      throw failed;
    }
    return this.#commit(sandboxes, facts, caller, opts.remember ?? ((infos) => caller.remember?.(201, infos)));
  }

  async update(id: string, request: UpdateSandbox, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#registry.get(id, caller);
    if (entry.isDeparting) await afterTransition(entry);
    if (entry.movedTo !== undefined) throw movedAway(entry.row.id, entry.movedTo);
    const {
      name,
      metadata,
      ttl_secs: ttl,
      idle_timeout_secs: idle,
      suspended_ttl_secs: asleep,
      on_timeout: onTimeout,
      auto_resume: autoResume,
    } = request;
    // the lifetime of a suspended sandbox starts when it is resumed
    const isAsleep = entry.row.state === "suspended";
    if (name !== entry.row.name) this.#refuseTaken(name, caller);
    const change = {
      ...(name === undefined ? {} : { name }),
      ...(metadata === undefined ? {} : { metadata }),
      ...(ttl === undefined ? {} : { ttl_secs: ttl, ...(isAsleep ? {} : { expires_at: ttl === null ? null : nowUnix() + ttl }) }),
      ...(idle === undefined ? {} : { idle_timeout_secs: idle }),
      ...(asleep === undefined ? {} : { suspended_ttl_secs: asleep, ...(isAsleep ? { expires_at: asleep && nowUnix() + asleep } : {}) }),
      ...(onTimeout === undefined ? {} : { on_timeout: onTimeout }),
      ...(autoResume === undefined ? {} : { auto_resume: autoResume ? 1 : 0 }),
    };
    this.#registry.change(entry, change, { type: "sandbox.updated", principal: caller.principal });
    return sandboxInfo(entry);
  }

  /** Resolves when the process, sockets and files are removed; concurrent calls share the removal */
  async remove(id: string, caller: Pick<Caller, "principal" | "project">, reason: string | null = null): Promise<void> {
    const entry = this.#registry.get(id, caller);
    entry.removing ??= this.#end(entry, caller.principal, reason).finally(() => {
      entry.removing = undefined;
    });
    return entry.removing;
  }

  async removeMany(which: "all" | { tag: string }, caller: Caller): Promise<string[]> {
    const isMeant = which === "all" ? () => true : await this.#isForkOf(storedName(which.tag, caller.project));
    const wanted = this.#registry.of(caller).filter(isMeant);
    await Promise.all(wanted.map(async ({ row }) => this.remove(row.id, caller)));
    return wanted.map(({ row }) => row.id);
  }

  /** Compares snapshot ids if the tag exists: an earlier snapshot may have had the same tag */
  async #isForkOf(tag: string): Promise<(entry: Entry) => boolean> {
    const id = await this.#core.runtime.snapshots.tagged(tag);
    return ({ row }) => (id === undefined ? row.snapshot_tag === tag : row.snapshot_id === id);
  }

  async pause(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#registry.get(id, caller);
    if (entry.row.state === "paused") return sandboxInfo(entry);
    await this.use(id, caller, async (sandbox) =>
      // under the branch lock: never in the middle of a branch, and the state is recorded before the next one starts
      sandbox.branching.run(async () => {
        try {
          await sandbox.pause();
          this.#registry.change(entry, { state: "paused" }, { type: "sandbox.paused", principal: caller.principal });
        } catch (error) {
          // undo: a late VMM may still pause the guest, and a sandbox not recorded as paused could never be resumed
          await sandbox.resume().catch((failure: unknown) => {
            this.#core.log.warn({ sandbox: entry.row.id, err: failure }, "a sandbox that could not be paused does not answer");
          });
          throw error;
        }
      }),
    );
    return sandboxInfo(entry);
  }

  /** Resumes a paused sandbox */
  async resume(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#registry.get(id, caller);
    await afterTransition(entry);
    if (entry.row.state === "running") return sandboxInfo(entry);
    const sandbox = liveOf(entry);
    await sandbox.resume();
    entry.lastActive = Date.now();
    this.#registry.record(entry, { state: "running" }, { type: "sandbox.resumed", principal: caller.principal });
    await sandbox.setClock();
    return sandboxInfo(entry);
  }

  async stats(id: string, viewer: Viewer): Promise<SandboxStats> {
    const entry = this.#registry.get(id, viewer);
    return sandboxStats(entry, liveOf(entry));
  }

  /** Stats of all live sandboxes; skips those that end while they are measured */
  async allStats(viewer: Viewer): Promise<SandboxStats[]> {
    const all = this.#registry.of(viewer).map(async (entry) => (entry.sandbox ? sandboxStats(entry, entry.sandbox) : undefined));
    const settled = await Promise.allSettled(all);
    return settled.flatMap((result) => (result.status === "fulfilled" ? (result.value ?? []) : []));
  }

  /** Runs work on a running sandbox, under a lease */
  async use<V>(id: string, viewer: Viewer, work: (sandbox: Sandbox, entry: Entry) => Promise<V>, opts: LeaseOptions = {}): Promise<V> {
    const lease = await this.lease(id, viewer, opts);
    try {
      return await work(lease.sandbox, lease.entry);
    } catch (error) {
      throw lease.explain(error);
    } finally {
      lease.release();
    }
  }

  /** For work that outlives its call, such as a stream; otherwise use(). Resumes a suspended `auto_resume` sandbox */
  async lease(id: string, viewer: Viewer, { isTransition = false, isUse = true }: LeaseOptions = {}): Promise<Lease> {
    const entry = this.#registry.get(id, viewer);
    if (!isTransition) await afterTransition(entry);
    if (entry.movedTo !== undefined) throw movedAway(entry.row.id, entry.movedTo);
    if (isUse && entry.row.state === "suspended" && entry.row.auto_resume === 1 && !entry.removing) await this.#wake(entry);
    const sandbox = liveOf(entry);
    if (entry.row.state === "paused") throw new ForkdError("SANDBOX_PAUSED", `Sandbox ${id} is paused.`);
    return new Lease(entry, sandbox, isUse);
  }

  /** Handles a VMM that exited by itself */
  gone(sandbox: Sandbox): void {
    const entry = this.#registry.byId(sandbox.id);
    if (!entry || entry.removing || entry.sandbox !== sandbox) return;
    this.#markGone(entry, "ended", endingOf(sandbox));
  }

  /** Handles the death of the VMs' parent process, which ends all VMs */
  allLost(reason: string): void {
    for (const entry of this.#registry.live) this.#markGone(entry, "lost", reason);
  }

  #markGone(entry: Entry, state: "ended" | "lost", reason: string): void {
    entry.sandbox = undefined;
    this.#registry.record(entry, { state, reason, name: null, last_active: nowUnix() }, { type: `sandbox.${state}`, reason });
    this.#collectSoon(entry);
  }

  async #prepare(request: CreateSandboxes, caller: Caller): Promise<{ snapshot: Snapshot; facts: RowFacts }> {
    const snapshot = await this.#snapshots.forkable(request.snapshot_tag, caller);
    this.#refuseTaken(request.name, caller);
    const asked = await spawnRequest(request, async (limits) =>
      this.possibleLimits({ ...limits, isolation: request.isolation }, machineOf(snapshot)),
    );
    return { snapshot, facts: await this.facts(asked.request, snapshot, caller, asked.warnings) };
  }

  /** Facts for the rows of a fork. Throws LIMIT_UNAVAILABLE if a limit cannot be enforced, and errors of its shares */
  async facts(request: RowFacts["request"], snapshot: Snapshot, caller: Caller, warnings: string[] = []): Promise<RowFacts> {
    const { tag } = snapshot.manifest;
    const limits = await this.possibleLimits(request, machineOf(snapshot));
    const { kind: confinement } = this.#core.runtime.confinement;
    const sharing = await this.#sharing(request, snapshot, caller);
    const { principal, project } = caller;
    const said = { warnings: [...warnings, ...sharing.warnings], principal, project, bootId: await bootId() };
    return { request, limits, confinement, shares: sharing.shares, snapshotTag: tag, ...said };
  }

  /** Requested shares, otherwise those inherited from the snapshot */
  async #sharing(request: RowFacts["request"], snapshot: Snapshot, caller: Caller): Promise<{ shares: Share[]; warnings: string[] }> {
    // a public snapshot brings no folders of the host to other projects
    if (!request.shares && this.#ownerOf(snapshot) !== caller.project) return { shares: [], warnings: [] };
    if (!request.shares) return inheritedShares(this.#core, snapshot.manifest.id);
    const shares = await allowedShares(this.#core, request.shares, caller);
    const { principal, requestId } = caller;
    if (shares.length > 0) this.#core.log.info({ principal, request_id: requestId, shares }, "folders of this machine are shared");
    return { shares, warnings: [] };
  }

  /** Throws LIMIT_UNAVAILABLE, or the reason why such a VM must not start. Changes nothing */
  async possibleLimits(request: GivenStart, machine: Machine): Promise<HostLimits> {
    const { runtime } = this.#core;
    runtime.checkStart(machine.isolation, request.isolation);
    const limits = hostLimits(request, machine.memory_mib);
    await runtime.groups.check(limits, limitName);
    return limits;
  }

  #refuseTaken(name: string | null | undefined, viewer: Viewer): void {
    if (name && SANDBOX_ID.test(name)) throw new ForkdError("BAD_NAME", `Name ${name} is not valid: it looks like the id of a sandbox.`);
    if (typeof name === "string" && this.#registry.isNameTaken(name, viewer))
      throw new ForkdError("EXISTS", `Cannot name the sandbox ${name}: another sandbox has that name.`);
  }

  async #fork(snapshot: Snapshot, request: ForkRequest, { limits, shares }: RowFacts, caller: Caller): Promise<ForkOutcome[]> {
    const { runtime, meter } = this.#core;
    const { n, env, isolation } = request;
    const { network: usual } = snapshot.manifest;
    // a public snapshot does not open the host's private networks to other projects
    const inherited = this.#ownerOf(snapshot) === caller.project ? undefined : withoutInward(usual, runtime.network);
    const network = request.network ? policyOf(request.network, caller, runtime.network) : inherited;
    const outcomes = await runtime.fork(snapshot, {
      n,
      env,
      network,
      shares,
      limits,
      isolation,
      queue: caller.project,
      signal: caller.signal,
    });
    for (const { sandbox } of outcomes) meter.forked(sandbox?.forkMs ?? 0, sandbox !== undefined);
    return outcomes;
  }

  #ownerOf({ manifest }: Snapshot): string {
    return this.#core.tables.snapshots.get(manifest.id)?.project ?? projectOf(manifest.tag);
  }

  /** Registers the sandboxes. Rows are stored before the response: a crash cannot orphan an acknowledged sandbox */
  async #commit(sandboxes: Sandbox[], facts: RowFacts, caller: Caller, remember: (infos: SandboxInfo[]) => void): Promise<SandboxInfo[]> {
    if (caller.signal.aborted) {
      await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
      throw new ForkdError("CANCELLED", "Cannot fork: the client disconnected.");
    }
    const pairs = sandboxes.filter(({ alive }) => alive).map((sandbox) => ({ row: sandboxRow(sandbox, facts), sandbox }));
    const infos = pairs.map(({ row, sandbox }) => sandboxInfo({ row, sandbox, lastActive: 0 }));
    try {
      // check again: a concurrent request may have taken the name meanwhile
      this.#refuseTaken(facts.request.name, caller);
      this.#registry.insert(pairs, { type: "sandbox.created", principal: caller.principal }, () => remember(infos));
    } catch (error) {
      await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
      throw error;
    }
    return infos;
  }

  async #end(entry: Entry, principal: string, reason: string | null): Promise<void> {
    await afterTransition(entry);
    const { id, state } = entry.row;
    if (entry.movedTo !== undefined) throw movedAway(id, entry.movedTo);
    // the VM may still exist but was not adopted: without its row it would be orphaned
    if (!entry.sandbox && (state === "running" || state === "paused"))
      throw new ForkdError("BUSY", `Cannot end sandbox ${id}: it is not adopted.`);
    await entry.sandbox?.kill();
    this.#registry.drop(entry, { type: "sandbox.deleted", principal, reason });
    // sync: after a power failure the row of a suspended sandbox would come back (a live one loses its VM anyway)
    if (state === "suspended") await this.#core.db.sync();
    this.#collectSoon(entry);
  }

  #collectSoon({ row }: Entry): void {
    const { log } = this.#core;
    const failed = (error: unknown): void => log.error({ err: error }, "ephemeral snapshots could not be collected");
    this.#snapshots.collectAfter(row.snapshot_id).catch(failed);
  }
}

/** VM of a live sandbox; throws the reason if there is none */
export function liveOf(entry: Entry): Sandbox {
  if (entry.sandbox && !entry.removing) return entry.sandbox;
  const { id, state, reason } = entry.row;
  if (entry.movedTo !== undefined) throw movedAway(id, entry.movedTo);
  if (entry.removing) throw new ForkdError("VMM_EXITED", `Sandbox ${id} is being ended.`);
  if (state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${id} is suspended.`);
  if (state === "running" || state === "paused") throw new ForkdError("BUSY", `Sandbox ${id} is just being adopted.`);
  if (state === "lost") throw new ForkdError("SANDBOX_LOST", `Sandbox ${id} was lost: ${reason}.`);
  throw new ForkdError("VMM_EXITED", `Sandbox ${id} has ended: ${reason}.`);
}

function sizesOf({ manifest }: Snapshot): Pick<Admission, "vcpus" | "memoryMiB" | "diskMiB"> {
  return { vcpus: manifest.shape.vcpus, memoryMiB: manifest.shape.memoryMiB, diskMiB: manifest.disk?.sizeMiB ?? null };
}

function gone(sandbox: Sandbox | undefined): ForkdError {
  return new ForkdError("FORK_FAILED", `The child ended at once${sandbox?.exit ? `: ${endingOf(sandbox)}` : ""}.`);
}

function endingOf(sandbox: Sandbox): string {
  const { exit } = sandbox;
  if (sandbox.isOutOfMemory) return "it exceeded its memory limit";
  if (!exit) return "its VMM ended";
  const log = exit.log.trim().split("\n").slice(-3).join(" ");
  if (exit.code === 0) return exit.failure === null ? "the guest powered off" : vmmEnding(exit);
  return `its VMM ended (${vmmEnding(exit)})${log ? `: ${log}` : ""}`;
}
