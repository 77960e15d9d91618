// Sandboxes: made, listed, changed, ended.

import type {
  CreateSandboxes,
  DeleteSandboxes,
  ForkSandbox,
  ForkOutcomes,
  ListSandboxes,
  SandboxInfo,
  SandboxStats,
  Share,
  UpdateSandbox,
} from "../api/sandbox.ts";
import { ForkdError, type ErrorCode } from "../errors.ts";
import type { HostLimits } from "../host/control-groups.ts";
import type { ForkOutcome } from "../sandbox/runtime-options.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { bootId } from "../util/boot-id.ts";
import type { Caller } from "./caller.ts";
import { nowUnix, plumbingWarnings, type Core } from "./core.ts";
import { hostLimits, limitName, type GivenLimits } from "./limit-fields.ts";
import { availableMemoryMiB, type Admission, type Limits } from "./limits.ts";
import { policyOf } from "./network-policy.ts";
import { hasMetadata, pageOf, type Page } from "./paging.ts";
import { problemOf } from "./problem.ts";
import { turned, type Entry, type Registry } from "./registry.ts";
import { allowedShares, inheritedShares } from "./shares.ts";
import { sandboxInfo, sandboxRow, type RowFacts } from "./sandbox-view.ts";
import { sandboxStats } from "./stats.ts";

/** What fails so when a VM ends in the middle of it */
const LOST_WITH_ITS_VM = new Set<ErrorCode>(["AGENT_LOST", "BRANCH_FAILED"]);

export type Usable = {
  /** Throws SNAPSHOT_NOT_READY, NOT_FOUND or SNAPSHOT_INVALID */
  usable: (tag: string) => Promise<Snapshot>;
  /** Removes what nothing needs any more now that a sandbox of this snapshot has ended */
  collectAfter: (snapshotId: string) => Promise<void>;
};

type Parts = {
  registry: Registry;
  limits: Limits;
  snapshots: Usable;
  /** of one that is suspended */
  wake: (entry: Entry) => Promise<unknown>;
};

/** a name like this would stand in front of the sandbox that has the id */
const SANDBOX_ID = /^sb-[a-z2-7]{16}$/;

type HoldOpts = {
  /** it is part of falling asleep; everything else waits until that is over */
  isTurning?: boolean | undefined;
};

export type Hold = { sandbox: Sandbox; entry: Entry; explain: (error: unknown) => unknown; release: () => void };

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
  readonly #wake: (entry: Entry) => Promise<unknown>;

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#registry = parts.registry;
    this.#limits = parts.limits;
    this.#snapshots = parts.snapshots;
    this.#wake = parts.wake;
  }

  list(query: ListSandboxes): Page<SandboxInfo> {
    const states = query.state ?? ["running", "paused", "suspended"];
    const wanted = this.#registry.entries
      .filter(({ row }) => states.includes(row.state) && (query.tag === undefined || row.snapshot_tag === query.tag))
      .filter(({ row }) => hasMetadata(row.metadata, query.metadata));
    const keyOf = (entry: Entry): string => `${String(entry.row.created_at).padStart(12, "0")} ${entry.row.id}`;
    const sorted = wanted.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    const page = pageOf(sorted, keyOf, query);
    return { items: page.items.map(sandboxInfo), nextCursor: page.nextCursor };
  }

  get(id: string): SandboxInfo {
    return sandboxInfo(this.#registry.get(id));
  }

  /** All or nothing */
  async create(request: CreateSandboxes, caller: Caller): Promise<SandboxInfo[]> {
    // both take a moment, and neither waits for the other
    const [{ snapshot, facts }, availableMiB] = await Promise.all([this.#prepare(request, caller), availableMemoryMiB()]);
    return this.fork(snapshot, { request, facts, caller, availableMiB });
  }

  /** An outcome for each child */
  async createEach(request: CreateSandboxes, caller: Caller): Promise<ForkOutcomes> {
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

  /** Forks a snapshot; `remember` may turn the sandboxes into what the request is answered with */
  async fork(snapshot: Snapshot, opts: ForkOptions): Promise<SandboxInfo[]> {
    const { request, caller, availableMiB } = opts;
    return this.admit({ n: request.n, ...sizesOf(snapshot), caller, availableMiB }, async () => this.forkAdmitted(snapshot, opts));
  }

  /** Runs the work with places for n more sandboxes, or throws LIMIT_REACHED */
  async admit<V>(request: Admission, work: () => Promise<V>): Promise<V> {
    return this.#limits.admit(request, work);
  }

  /** The same for one that has its places */
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
    const entry = this.#registry.get(id);
    const { name, metadata, ttl_secs: ttl, idle_timeout_secs: idle, on_timeout: onTimeout, auto_resume: autoResume } = request;
    // the time of one that sleeps begins when it wakes up
    const isAsleep = entry.row.state === "suspended";
    if (name !== entry.row.name) this.#refuseTaken(name);
    const change = {
      ...(name === undefined ? {} : { name }),
      ...(metadata === undefined ? {} : { metadata }),
      ...(ttl === undefined ? {} : { ttl_secs: ttl, expires_at: ttl === null || isAsleep ? null : nowUnix() + ttl }),
      ...(idle === undefined ? {} : { idle_timeout_secs: idle }),
      ...(onTimeout === undefined ? {} : { on_timeout: onTimeout }),
      ...(autoResume === undefined ? {} : { auto_resume: autoResume ? 1 : 0 }),
    };
    this.#registry.change(entry, change, { type: "sandbox.updated", principal: caller.principal });
    return sandboxInfo(entry);
  }

  /** Resolves when process, sockets and files are gone; a second caller waits for the same */
  async remove(id: string, caller: Pick<Caller, "principal">, reason: string | null = null): Promise<void> {
    const entry = this.#registry.get(id);
    entry.removing ??= this.#end(entry, caller.principal, reason).finally(() => {
      entry.removing = undefined;
    });
    return entry.removing;
  }

  async removeMany(query: DeleteSandboxes, caller: Caller): Promise<string[]> {
    if (!query.all && query.tag === undefined)
      throw new ForkdError("BAD_REQUEST", "Cannot end sandboxes: say which.", { hint: "Give ?all=true or ?tag=TAG." });
    // by id where there is one: an earlier snapshot may have had the same tag
    const id = query.tag === undefined ? undefined : await this.#core.runtime.snapshots.tagged(query.tag);
    const isMeant = ({ row }: Entry): boolean =>
      query.tag === undefined || (id === undefined ? row.snapshot_tag === query.tag : row.snapshot_id === id);
    const wanted = this.#registry.entries.filter(isMeant);
    await Promise.all(wanted.map(async ({ row }) => this.remove(row.id, caller)));
    return wanted.map(({ row }) => row.id);
  }

  async pause(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#registry.get(id);
    if (entry.row.state === "paused") return sandboxInfo(entry);
    await this.use(id, async (sandbox) =>
      // not in the middle of a branch, and known to be paused before the next one begins
      sandbox.branching.run(async () => {
        await sandbox.vm.pause();
        this.#registry.change(entry, { state: "paused" }, { type: "sandbox.paused", principal: caller.principal });
      }),
    );
    return sandboxInfo(entry);
  }

  /** One that is paused */
  async resume(id: string, caller: Caller): Promise<SandboxInfo> {
    const entry = this.#registry.get(id);
    if (entry.row.state === "running") return sandboxInfo(entry);
    const sandbox = liveOf(entry);
    await sandbox.vm.resume();
    entry.lastActive = Date.now();
    this.#registry.change(entry, { state: "running" }, { type: "sandbox.resumed", principal: caller.principal });
    await sandbox.setClock();
    return sandboxInfo(entry);
  }

  async stats(id: string): Promise<SandboxStats> {
    const entry = this.#registry.get(id);
    return sandboxStats(entry, liveOf(entry));
  }

  /** Of every sandbox that lives; one that ends meanwhile is left out */
  async allStats(): Promise<SandboxStats[]> {
    const all = this.#registry.live.map(async (entry) => (entry.sandbox ? sandboxStats(entry, entry.sandbox) : undefined));
    const settled = await Promise.allSettled(all);
    return settled.flatMap((result) => (result.status === "fulfilled" ? (result.value ?? []) : []));
  }

  /** Runs work on a running sandbox, which counts as used meanwhile and from then on */
  async use<V>(id: string, work: (sandbox: Sandbox, entry: Entry) => Promise<V>, opts: HoldOpts = {}): Promise<V> {
    const { sandbox, entry, explain, release } = await this.hold(id, opts);
    try {
      return await work(sandbox, entry);
    } catch (error) {
      throw explain(error);
    } finally {
      release();
    }
  }

  /** The same for work that outlives its call: a running sandbox, which counts as used until it is let go */
  async hold(id: string, { isTurning = false }: HoldOpts = {}): Promise<Hold> {
    const entry = this.#registry.get(id);
    if (!isTurning) await turned(entry);
    if (entry.row.state === "suspended" && entry.row.auto_resume === 1 && !entry.removing) await this.#wake(entry);
    const sandbox = liveOf(entry);
    if (entry.row.state === "paused") throw new ForkdError("SANDBOX_PAUSED", `Sandbox ${id} is paused.`);
    entry.uses++;
    let isHeld = true;
    return {
      sandbox,
      entry,
      explain: (error) => failedWith(error, sandbox, entry),
      release: () => {
        if (!isHeld) return;
        isHeld = false;
        entry.uses--;
        entry.lastActive = Date.now();
      },
    };
  }

  /** A VMM that ended by itself */
  gone(sandbox: Sandbox): void {
    const entry = this.#registry.find(sandbox.id);
    if (!entry || entry.removing || entry.sandbox !== sandbox) return;
    this.#markGone(entry, "ended", endingOf(sandbox));
  }

  /** The parent of all VMs died, and they with it */
  allLost(reason: string): void {
    for (const entry of this.#registry.live) this.#markGone(entry, "lost", reason);
  }

  #markGone(entry: Entry, state: "ended" | "lost", reason: string): void {
    entry.sandbox = undefined;
    this.#registry.change(entry, { state, reason, name: null, last_active: nowUnix() }, { type: `sandbox.${state}`, reason });
    this.#collectSoon(entry);
  }

  async #prepare(request: CreateSandboxes, caller: Caller): Promise<{ snapshot: Snapshot; facts: RowFacts }> {
    const snapshot = await this.#snapshots.usable(request.snapshot_tag);
    this.#refuseTaken(request.name);
    const warnings = plumbingWarnings(request, ["per_child_netns", "prewarm", "live_fork", "hugepages"]);
    return { snapshot, facts: await this.facts(request, snapshot, caller, warnings) };
  }

  /** What is written down of a fork; throws LIMIT_UNAVAILABLE for a limit that cannot be kept, and what is wrong with its shares */
  async facts(request: RowFacts["request"], snapshot: Snapshot, caller: Caller, warnings: string[] = []): Promise<RowFacts> {
    const { id, tag, shape } = snapshot.manifest;
    const limits = await this.possibleLimits(request, shape.memoryMiB);
    const { kind: confinement } = this.#core.runtime.confinement;
    const sharing = await this.#sharing(request, id, caller);
    const said = { warnings: [...warnings, ...sharing.warnings], principal: caller.principal, bootId: await bootId() };
    return { request, limits, confinement, shares: sharing.shares, snapshotTag: tag, ...said };
  }

  /** What was asked for, else what its snapshot had */
  async #sharing(request: RowFacts["request"], snapshotId: string, caller: Caller): Promise<{ shares: Share[]; warnings: string[] }> {
    if (!request.shares) return inheritedShares(this.#core, snapshotId);
    const shares = await allowedShares(this.#core, request.shares, caller);
    const { principal, requestId } = caller;
    if (shares.length > 0) this.#core.log.info({ principal, request_id: requestId, shares }, "folders of this machine are shared");
    return { shares, warnings: [] };
  }

  /** Throws LIMIT_UNAVAILABLE, or CONFINEMENT_UNAVAILABLE where no VM may be started at all; nothing has been touched then */
  async possibleLimits(request: GivenLimits, memoryMiB: number): Promise<HostLimits> {
    const { runtime } = this.#core;
    runtime.checkConfinement();
    const limits = hostLimits(request, memoryMiB);
    await runtime.groups.check(limits, limitName);
    return limits;
  }

  #refuseTaken(name: string | null | undefined): void {
    if (name && SANDBOX_ID.test(name)) throw new ForkdError("BAD_NAME", `Name ${name} is not valid: it looks like the id of a sandbox.`);
    if (typeof name === "string" && this.#registry.isNameTaken(name))
      throw new ForkdError("EXISTS", `Cannot name the sandbox ${name}: another one has that name.`);
  }

  async #fork(snapshot: Snapshot, request: ForkRequest, { limits, shares }: RowFacts, caller: Caller): Promise<ForkOutcome[]> {
    const { runtime, meter } = this.#core;
    const { n, env } = request;
    const network = request.network && policyOf(request.network, caller, runtime.network);
    const outcomes = await runtime.fork(snapshot, { n, env, network, shares, limits, signal: caller.signal });
    for (const { sandbox } of outcomes) meter.forked(sandbox?.forkMs ?? 0, sandbox !== undefined);
    return outcomes;
  }

  /** From here on the sandboxes are the daemon's: written down before anybody hears of them */
  async #commit(sandboxes: Sandbox[], facts: RowFacts, caller: Caller, remember: (infos: SandboxInfo[]) => void): Promise<SandboxInfo[]> {
    if (caller.signal.aborted) {
      await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
      throw new ForkdError("CANCELLED", "Cannot fork: the client went away.");
    }
    const pairs = sandboxes.filter(({ alive }) => alive).map((sandbox) => ({ row: sandboxRow(sandbox, facts), sandbox }));
    const infos = pairs.map(({ row }) => sandboxInfo({ row, lastActive: 0 }));
    try {
      // once more: another one may have got the name while these were being made
      this.#refuseTaken(facts.request.name);
      this.#registry.insert(pairs, { type: "sandbox.created", principal: caller.principal }, () => remember(infos));
    } catch (error) {
      await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
      throw error;
    }
    return infos;
  }

  async #end(entry: Entry, principal: string, reason: string | null): Promise<void> {
    await turned(entry);
    const { id, state } = entry.row;
    // its VM is being looked for: struck out now, it would be nobody's
    if (!entry.sandbox && (state === "running" || state === "paused"))
      throw new ForkdError("BUSY", `Cannot end sandbox ${id}: it is just being adopted.`);
    await entry.sandbox?.kill();
    this.#registry.drop(entry, { type: "sandbox.deleted", principal, reason });
    this.#collectSoon(entry);
  }

  #collectSoon({ row }: Entry): void {
    const { log } = this.#core;
    const failed = (error: unknown): void => log.error({ err: error }, "ephemeral snapshots could not be collected");
    this.#snapshots.collectAfter(row.snapshot_id).catch(failed);
  }
}

/** What was under way when it ended failed for that reason, whatever the channel says */
export function failedWith(error: unknown, sandbox: Sandbox, entry: Entry): unknown {
  const isGone = !sandbox.alive || entry.removing !== undefined;
  if (!isGone || !(error instanceof ForkdError) || !LOST_WITH_ITS_VM.has(error.code)) return error;
  return new ForkdError("VMM_EXITED", `Sandbox ${sandbox.id} has ended.`, { cause: error });
}

/** The VM of a sandbox that lives, or why there is none */
export function liveOf(entry: Entry): Sandbox {
  if (entry.sandbox && !entry.removing) return entry.sandbox;
  const { id, state, reason } = entry.row;
  if (entry.removing) throw new ForkdError("VMM_EXITED", `Sandbox ${id} is being ended.`);
  if (state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${id} is suspended.`);
  if (state === "lost") throw new ForkdError("SANDBOX_LOST", `Sandbox ${id} was lost: ${reason}.`);
  throw new ForkdError("VMM_EXITED", `Sandbox ${id} has ended: ${reason}.`);
}

function sizesOf({ manifest }: Snapshot): Pick<Admission, "memoryMiB" | "diskMiB"> {
  return { memoryMiB: manifest.shape.memoryMiB, diskMiB: manifest.disk?.sizeMiB ?? null };
}

function gone(sandbox: Sandbox | undefined): ForkdError {
  return new ForkdError("FORK_FAILED", `The child ended at once${sandbox?.exit ? `: ${endingOf(sandbox)}` : ""}.`);
}

function endingOf(sandbox: Sandbox): string {
  const { exit } = sandbox;
  if (sandbox.isOutOfMemory) return "it went over its memory limit";
  if (!exit) return "its VMM ended";
  const log = exit.log.trim().split("\n").slice(-3).join(" ");
  if (exit.code === 0) return "the guest powered off";
  return `its VMM ended (${exit.signal ?? `exit code ${exit.code}`})${log ? `: ${log}` : ""}`;
}
