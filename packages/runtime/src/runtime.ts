// The runtime: all VM operations in one process. It owns its VMs and ends them when it is disposed.

import { readdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { ForkdError, messageOf } from "./errors.ts";
import { prepareHome, resolveHome, type Home } from "./home.ts";
import { ControlGroups, hasLimits, NO_LIMITS, type HostLimits } from "./host/control-groups.ts";
import type { GuestKernel } from "./guest-kernel/guest-kernel.ts";
import { sweepStaging } from "./host/staging.ts";
import { ImageStore } from "./image/store.ts";
import { FlatCache } from "./snapshot/flat-images.ts";
import { Network, type NetworkOptions } from "./egress/network.ts";
import { NO_NETWORK, type NetworkPolicy } from "./egress/policy.ts";
import { DEFAULT_HUGEPAGES_DIR } from "./host/huge-pages.ts";
import type { AcceleratorPolicy, IsolationPolicy } from "./host/accelerators.ts";
import type { ConfinementPolicy } from "./host/confined.ts";
import { hiddenFrom, type Hidden } from "./share/hidden.ts";
import type { Share } from "./share/server.ts";
import { checkShares } from "./share/source.ts";
import { SnapshotStore, type Snapshot } from "./snapshot/store.ts";
import type { Progress } from "./util/progress.ts";
import { DEFAULT_PARALLELISM } from "./util/parallelism.ts";
import { FairSemaphore } from "./util/fair-semaphore.ts";
import { checkCompatible } from "./vmm/compatible.ts";
import { isolationOf, type AcceleratorChoice, type ConfinementState, type Engine, type Isolation } from "./vmm/driver.ts";
import { adoptSandbox, type SandboxRecord } from "./sandbox/adopt.ts";
import { makeSnapshot, type SnapshotTimings, type WarmUp } from "./sandbox/boot.ts";
import { branchSandbox, type BranchOptions, type BranchResult } from "./sandbox/branch.ts";
import {
  checkThere,
  despiteEnds,
  personalize,
  activate,
  startUnclaimedVm,
  type Continued,
  type ForkContext,
  type Personality,
} from "./sandbox/fork.ts";
import { ClockKeeper } from "./sandbox/clock-keeper.ts";
import { compactSnapshot, type CompactOptions } from "./sandbox/compact.ts";
import { detectHost, type HostSupport } from "./host-support.ts";
import { SnapshotLocks } from "./snapshot/locks.ts";
import { Pool } from "./sandbox/pool.ts";
import { Zygotes, type ZygoteLimits } from "./sandbox/zygotes.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";
import { diskSize, machineShape } from "./sandbox/machine-spec.ts";
import { recordedImage } from "./sandbox/memory-image.ts";
import { durableWorkDirs, endChildrenOf, ownWorkDirs, type WorkDirs } from "./work-dirs.ts";

const MAX_FORK = 1000;

export type RuntimeOptions = {
  /** code with which the ids of its sandboxes begin; default: they are random throughout */
  node?: string | undefined;
  /** default: detected on this host */
  host?: HostSupport | undefined;
  home?: Home;
  /** number of children that start in parallel */
  parallelism?: number | undefined;
  /** path of a custom guest kernel */
  guestKernel?: string | undefined;
  /** default: FORKD_ACCELERATOR */
  accelerator?: AcceleratorPolicy | undefined;
  /** folder on a tmpfs with huge pages, for snapshots with `hugepages`; default: /dev/shm */
  hugepagesDir?: string | undefined;
  /** resolver settings, and observers of connections */
  network?: NetworkOptions | undefined;
  /**
   * "preferred" (the default): VMMs run unconfined if the host does not support confinement; "required": they are not
   * started
   */
  confinement?: ConfinementPolicy | undefined;
  /**
   * "auto" (the default): guests are emulated only if KVM is not in use; "kvm": never; "any": also snapshots made
   * without KVM
   */
  isolation?: IsolationPolicy | undefined;
  onWarning?: (message: string) => void;
  /** when zygotes are ended or replaced */
  zygotes?: Partial<ZygoteLimits> | undefined;
  /**
   * "own": VMs end with this process. "durable": they outlive it and the next process adopts them; the caller ensures
   * that only one such runtime runs
   */
  life?: "own" | "durable";
  /** called for each sandbox that has ended; the sandbox has the reason */
  onGone?: ((sandbox: Sandbox) => void) | undefined;
  /** called when the warden, the parent of all VMs, has died: its VMs die with it */
  onLost?: ((why: string) => void) | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export type CreateSnapshotOptions = {
  tag: string;
  /** id of the new snapshot */
  id?: string | undefined;
  /** name or id of a stored image */
  image: string;
  memoryMiB?: number | undefined;
  vcpus?: number | undefined;
  /** "baseline", "host" or a model of the engine. Default: the best model of this host; with emulation, the baseline */
  cpu?: string | undefined;
  /** forks map a copy of its memory in huge pages, which takes as much memory of the host while one of them runs */
  hugepages?: boolean | undefined;
  /** size of the writable disk on the host; without it the guest's writes stay in its memory */
  diskMiB?: number | undefined;
  warmUp?: WarmUp | undefined;
  env?: Record<string, string> | undefined;
  /** policy during the warm-up, and the default for forks; default: no network */
  network?: NetworkPolicy | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export type ForkOptions = {
  n?: number;
  /** if one child fails, all are ended */
  allOrNothing?: boolean;
  env?: Record<string, string> | undefined;
  /** default: the policy of the snapshot */
  network?: NetworkPolicy | undefined;
  /** folders of the host that the children mount read-only */
  shares?: readonly Share[] | undefined;
  limits?: HostLimits | undefined;
  /** which guests may be emulated, unless the runtime's own setting requires KVM */
  isolation?: IsolationPolicy | undefined;
  /** children load the snapshot even if a zygote could be cloned */
  restored?: boolean | undefined;
  /** works of different queues take turns; default: one queue */
  queue?: string | undefined;
  /** suspended sandbox that a single child continues */
  as?: Continued | undefined;
  signal?: AbortSignal | undefined;
};

/** One child: the sandbox, or the error */
export type ForkOutcome = { sandbox: Sandbox; error?: undefined } | { sandbox?: undefined; error: ForkdError };

type RuntimeParts = {
  home: Home;
  node: string;
  support: HostSupport;
  engine: Engine;
  workDirs: WorkDirs;
  parallelism: number;
  network: Network;
  hidden: Hidden;
  zygotes: Partial<ZygoteLimits> | undefined;
  onWarning: (message: string) => void;
  onGone: (sandbox: Sandbox) => void;
};

export class Runtime {
  readonly home: Home;
  readonly images: ImageStore;
  readonly snapshots: SnapshotStore;
  readonly flats: FlatCache;
  readonly accelerator: AcceleratorChoice;
  /** confinement of the VMMs that this runtime starts */
  readonly confinement: ConfinementState;
  /** Throws CONFINEMENT_UNAVAILABLE or ISOLATION_UNAVAILABLE if such a VM must not be started */
  readonly checkStart: HostSupport["checkStart"];
  readonly engine: Engine;
  readonly guestKernel: GuestKernel;
  readonly runDir: string;
  readonly pool: Pool;
  readonly zygotes: Zygotes;
  readonly network: Network;
  readonly groups: ControlGroups;
  readonly #workDirs: WorkDirs;
  /** called for every sandbox that has ended */
  readonly #forget: (sandbox: Sandbox) => void;
  readonly #onWarning: (message: string) => void;
  readonly #hidden: Hidden;
  readonly #node: string;
  readonly #forking: FairSemaphore;
  readonly #capturing: FairSemaphore;
  /** never invalidated: images are content-addressed */
  readonly #rootfs = new Map<string, string>();
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly locks: SnapshotLocks = new SnapshotLocks();
  readonly #clocks = new ClockKeeper(() => this.sandboxes);
  #requests = 0;
  #idleSince = performance.now();
  #closing: Promise<void> | undefined;
  /** number of adoptions in progress */
  #adopting = 0;
  /** aborts adoptions when the VMs are left to the next process */
  readonly #leaving = new AbortController();

  private constructor(parts: RuntimeParts) {
    this.home = parts.home;
    this.#node = parts.node;
    const { guestKernel, accelerator, confinement, checkStart } = parts.support;
    this.accelerator = accelerator;
    this.confinement = confinement;
    this.checkStart = checkStart;
    this.engine = parts.engine;
    this.guestKernel = guestKernel;
    this.runDir = parts.workDirs.runDir;
    this.#workDirs = parts.workDirs;
    this.network = parts.network;
    this.#forget = (sandbox) => {
      this.#sandboxes.delete(sandbox.id);
      void this.flats.evict();
      parts.onGone(sandbox);
    };
    this.#onWarning = parts.onWarning;
    this.#hidden = parts.hidden;
    this.images = new ImageStore(parts.home);
    this.snapshots = new SnapshotStore(parts.home);
    const { flatDir, hugeDir, warden } = parts.workDirs;
    this.flats = new FlatCache({ dir: flatDir, hugeDir, warden, snapshots: this.snapshots });
    const parents = async (): Promise<number[]> => [(await (await warden()).info()).pid];
    this.groups = new ControlGroups({ home: parts.home.root, parents });
    this.#forking = new FairSemaphore(parts.parallelism);
    this.#capturing = new FairSemaphore(Math.max(1, availableParallelism()));
    const idleSince = (): number | undefined => (this.#requests === 0 ? this.#idleSince : undefined);
    const check = ({ manifest }: Snapshot): void => checkStart(isolationOf(manifest.shape.accelerator));
    this.pool = new Pool({ context: this.#forkContext(), check, idleSince, onError: parts.onWarning });
    this.zygotes = new Zygotes({ context: this.#forkContext(), onError: parts.onWarning, limits: parts.zygotes });
  }

  /** Finds the engine, prepares the guest kernel, and cleans up after a killed runtime */
  static async start(opts: RuntimeOptions = {}): Promise<Runtime> {
    const home = await prepareHome(opts.home ?? resolveHome());
    const onWarning = opts.onWarning ?? (() => undefined);
    const support = opts.host ?? (await detectHost(home, opts));
    const hugepagesDir = opts.hugepagesDir ?? DEFAULT_HUGEPAGES_DIR;
    const durable = opts.life === "durable";
    const workDirs = durable
      ? await durableWorkDirs(home, hugepagesDir, opts.onLost ?? (() => undefined))
      : await ownWorkDirs(home, hugepagesDir, onWarning);
    try {
      const { accelerator, confinement, checkStart } = support;
      // The last check, without the request's options: "any" refuses only what no request can allow.
      const check = (isolation: Isolation): void => checkStart(isolation, "any");
      const engine = support.engine.start({ accelerator, confinement, warden: workDirs.warden, check });
      await engine.prepare(opts.signal);
      const { node = "", parallelism = DEFAULT_PARALLELISM, zygotes, onGone = () => undefined } = opts;
      const network = new Network(opts.network);
      const hidden = await hiddenFrom(home);
      const runtime = new Runtime({ home, node, support, engine, workDirs, parallelism, network, hidden, zygotes, onWarning, onGone });
      await sweepStaging(home);
      await runtime.snapshots.sweep();
      return runtime;
    } catch (error) {
      await (workDirs.leave ?? workDirs.end)();
      throw error;
    }
  }

  get isClosing(): boolean {
    return this.#closing !== undefined;
  }

  get sandboxes(): Sandbox[] {
    return [...this.#sandboxes.values()];
  }

  /** Boots an image, warms it and freezes it under a tag */
  async createSnapshot(opts: CreateSnapshotOptions): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
    const { accelerator } = this.accelerator;
    this.checkStart(isolationOf(accelerator));
    const shape = machineShape(opts, { ...this.engine.newMachine, accelerator, ...(await this.engine.cpuFor(opts.cpu)) });
    const diskMiB = diskSize(opts.diskMiB);
    if (shape.hugepages) await this.flats.checkHugePages();
    const image = await this.images.get(opts.image);
    const { home, snapshots, runDir, network } = this;
    const { warden, vmsDir } = this.#workDirs;
    const context = { home, engine: this.engine, warden, snapshots, runDir, vmsDir, network };
    return this.#request(async () =>
      makeSnapshot(context, {
        tag: opts.tag,
        id: opts.id,
        image,
        guestKernel: this.guestKernel,
        shape,
        diskMiB,
        warmUp: opts.warmUp ?? {},
        env: opts.env ?? {},
        policy: opts.network ?? NO_NETWORK,
        signal: opts.signal,
        progress: opts.progress,
      }),
    );
  }

  /** Forks children of a snapshot; each has its own outcome unless `allOrNothing` */
  async fork(from: string | Snapshot, opts: ForkOptions = {}): Promise<ForkOutcome[]> {
    const n = opts.n ?? 1;
    if (!Number.isInteger(n) || n < 1 || n > MAX_FORK)
      throw new ForkdError("BAD_REQUEST", `Cannot fork ${n} children: the number must be between 1 and ${MAX_FORK}.`);
    const snapshot = typeof from === "string" ? await this.snapshots.get(from) : from;
    this.checkStart(isolationOf(snapshot.manifest.shape.accelerator), opts.isolation);
    checkCompatible(snapshot.manifest.tag, snapshot.manifest.shape, this.engine);
    const one = { ...opts, shares: await checkShares(opts.shares ?? [], this.home) };
    const forkAll = async (): Promise<ForkOutcome[]> => Promise.all(Array.from({ length: n }, async () => this.#forkOne(snapshot, one)));
    const outcomes = await this.#request(async () =>
      this.locks.whileMaking(snapshot, async () => {
        await checkThere(snapshot);
        if (!opts.as && !opts.restored) await this.zygotes.prepare(snapshot, n);
        return forkAll();
      }),
    );
    const failed = outcomes.find((outcome) => outcome.error);
    if (!failed?.error || !opts.allOrNothing) return outcomes;
    await Promise.all(outcomes.map(async (outcome) => outcome.sandbox?.kill()));
    throw failed.error;
  }

  /**
   * Prepares the next forks of a snapshot: a VMM that is cloned, or where that is not possible `n` VMMs that wait. 0 ends
   * those that wait
   */
  async keepReady(snapshot: Snapshot, n: number): Promise<void> {
    if (n > 0) {
      this.checkStart(isolationOf(snapshot.manifest.shape.accelerator));
      if (await this.zygotes.make(snapshot)) return this.pool.drop(snapshot.manifest.id);
    }
    await this.pool.resize(snapshot, n);
  }

  /** Forks one child; throws its error */
  async forkOne(from: string | Snapshot, opts: Omit<ForkOptions, "n" | "allOrNothing"> = {}): Promise<Sandbox> {
    const [outcome] = await this.fork(from, opts);
    if (!outcome?.sandbox) throw outcome?.error ?? new ForkdError("FORK_FAILED", "No child was made.");
    return outcome.sandbox;
  }

  /** Takes a snapshot of a running sandbox, which continues to run */
  async branch(sandbox: Sandbox, tag: string | BranchOptions): Promise<BranchResult> {
    if (!sandbox.alive) throw new ForkdError("VMM_EXITED", `Cannot branch sandbox ${sandbox.id}: it has ended.`);
    const opts = typeof tag === "string" ? { tag } : tag;
    const { warden } = this.#workDirs;
    const { home, snapshots, zygotes } = this;
    const context = { ...this.#forkContext(), home, warden, snapshots, zygotes, onWarning: this.#onWarning };
    const capture = async (): Promise<BranchResult> =>
      this.#capturing.run(opts.queue ?? "", async () => branchSandbox(context, sandbox, opts));
    return this.#request(async () => this.locks.whileMaking(sandbox.snapshot, capture));
  }

  /** Copies a snapshot into one without a chain */
  async compact(from: Snapshot, opts: CompactOptions): Promise<Snapshot> {
    const { home, snapshots, flats, engine } = this;
    const context = { home, snapshots, flats, engine, warden: this.#workDirs.warden };
    return this.#request(async () => this.locks.whileMaking(from, async () => compactSnapshot(context, from, opts)));
  }

  /** Removes a snapshot that nothing uses */
  async removeSnapshot(name: string): Promise<void> {
    const id = await this.snapshots.idOf(name);
    const users = this.sandboxes.filter((sandbox) => sandbox.snapshot.manifest.id === id);
    if (users.length > 0) throw new ForkdError("IN_USE", `Cannot remove snapshot ${name}: ${users.length} sandboxes run from it.`);
    await this.locks.whileRemoving(id, name, async () => {
      await this.snapshots.remove(name);
      await this.pool.drop(id);
      await this.zygotes.forget(id);
      await this.flats.remove(id);
    });
  }

  /** Changes the tag of a snapshot, unless it is being used or removed */
  async renameSnapshot(tag: string, to: string, opts: { replace?: boolean } = {}): Promise<Snapshot> {
    const id = await this.snapshots.idOf(tag);
    return this.locks.whileRemoving(id, tag, async () => this.snapshots.rename(tag, to, opts));
  }

  /** Adopts a sandbox of an earlier process; returns the reason if it has ended */
  async adopt(record: SandboxRecord): Promise<Sandbox | string> {
    const { warden, vmsDir } = this.#workDirs;
    const { groups, flats, snapshots, runDir, network } = this;
    const common = { hidden: this.#hidden, onWarning: this.#onWarning, onGone: this.#forget, signal: this.#leaving.signal };
    this.#adopting++;
    try {
      const adopted = await adoptSandbox(
        { engine: this.engine, warden, flats, snapshots, runDir, vmsDir, network, groups, ...common },
        record,
      );
      if (typeof adopted !== "string" && adopted.alive) this.#sandboxes.set(adopted.id, adopted);
      return adopted;
    } finally {
      this.#adopting--;
    }
  }

  /**
   * Ends the VMs of an earlier process that are not adopted and removes their files; returns their number. `others` are
   * still being adopted
   */
  async endOthers(others: readonly { id: string; pid: number; snapshotId: string }[] = []): Promise<number> {
    const own = new Set([...this.sandboxes.map((sandbox) => sandbox.vm.pid), ...others.map(({ pid }) => pid)]);
    const ids = new Set([...this.#sandboxes.keys(), ...others.map(({ id }) => id)]);
    const ended = await endChildrenOf(await this.#workDirs.warden(), own);
    for (const dir of [this.runDir, this.#workDirs.vmsDir])
      for (const name of await readdir(dir)) {
        if (/^(?:sb|zy)-/.test(name) && !ids.has(name)) await rm(join(dir, name), { recursive: true, force: true });
      }
    await this.groups.sweep(ids);
    const images = await Promise.all(others.map(async ({ id }) => recordedImage(join(this.runDir, id))));
    await this.flats.sweep([...others.map(({ snapshotId }) => snapshotId), ...images.filter((image) => image !== undefined)]);
    return ended;
  }

  /** Leaves the sandboxes running for the next process */
  async leave(): Promise<void> {
    const { leave } = this.#workDirs;
    if (!leave) throw new ForkdError("BAD_REQUEST", "Cannot leave these sandboxes: they end with this process.");
    this.#closing ??= this.#leave(leave);
    return this.#closing;
  }

  async #leave(disconnect: () => Promise<void>): Promise<void> {
    const isAdopting = this.#adopting > 0;
    this.#leaving.abort(new Error("the runtime is closing"));
    this.#clocks.close();
    await Promise.all([this.pool.close(), this.zygotes.close()]);
    // without VMs the next process has nothing to adopt
    if (this.sandboxes.length === 0 && !isAdopting) return this.#workDirs.end();
    for (const sandbox of this.sandboxes) sandbox.detach();
    await disconnect();
  }

  /** Ends every sandbox and removes every file of this runtime; snapshots and images stay */
  async close(): Promise<void> {
    this.#closing ??= this.#release();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #release(): Promise<void> {
    this.#clocks.close();
    const ends = await Promise.allSettled([
      this.pool.close(),
      this.zygotes.close(),
      ...this.sandboxes.map(async (sandbox) => sandbox.kill()),
    ]);
    // VMs that could not be ended one by one end with the warden
    await this.#workDirs.end();
    const failed = ends.find((end) => end.status === "rejected");
    if (failed) throw failed.reason;
  }

  async #forkOne(snapshot: Snapshot, opts: ForkOptions & { shares: readonly Share[] }): Promise<ForkOutcome> {
    const startedAt = performance.now();
    try {
      const sandbox = await this.#forking.run(opts.queue ?? "", async () => {
        opts.signal?.throwIfAborted();
        if (this.#closing) throw new ForkdError("CANCELLED", "Cannot fork: the runtime is closing.");
        const { env = {}, network: policy, shares, as, restored, signal, limits = NO_LIMITS } = opts;
        const host = { network: this.network, hidden: this.#hidden, onGone: this.#forget };
        const over: Personality = { snapshot, env, policy, shares, as, ...host, startedAt, signal };
        // pooled VMs were started outside of any control group and have a new identity
        const pooled = hasLimits(limits) || as ? undefined : this.pool.take(snapshot);
        const waiting = pooled ?? (as || restored ? undefined : await this.zygotes.clone(snapshot, { limits }));
        const onFailure = (why: string): void =>
          this.#onWarning(`A waiting child of ${snapshot.manifest.tag} is replaced by a restored one: ${why}`);
        const sandbox = waiting && (await activate(waiting, over, onFailure));
        if (sandbox) return sandbox;
        const restore = async (): Promise<Sandbox> =>
          personalize(await startUnclaimedVm(this.#forkContext(), snapshot, "run", { id: as?.id, limits }), over);
        if (snapshot.manifest.shape.accelerator !== "tcg") return restore();
        return despiteEnds(restore, (why) => this.#onWarning(`A child of ${snapshot.manifest.tag} is restored again: ${why}`));
      });
      // #forget has already run for a sandbox that ended at once
      if (sandbox.alive) this.#sandboxes.set(sandbox.id, sandbox);
      return { sandbox };
    } catch (error) {
      const code = opts.signal?.aborted ? "CANCELLED" : "FORK_FAILED";
      return {
        error:
          error instanceof ForkdError
            ? error
            : new ForkdError(code, `Cannot fork ${snapshot.manifest.tag}: ${messageOf(error)}.`, { cause: error }),
      };
    }
  }

  #forkContext(): ForkContext {
    const { flats, runDir, groups } = this;
    const rootfsOf: ForkContext["rootfsOf"] = async ({ manifest: { imageId } }) => {
      const known = this.#rootfs.get(imageId) ?? (await this.images.get(imageId)).rootfsPath;
      this.#rootfs.set(imageId, known);
      return known;
    };
    return { engine: this.engine, flats, runDir, vmsDir: this.#workDirs.vmsDir, groups, rootfsOf, node: this.#node };
  }

  async #request<V>(work: () => Promise<V>): Promise<V> {
    this.#requests++;
    try {
      return await work();
    } finally {
      this.#requests--;
      this.#idleSince = performance.now();
    }
  }
}
