// Everything forkd does, in one process: owns the VMs and ends them all when it is disposed.

import { readdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { prepareHome, resolveHome, type Home } from "../home.ts";
import { ControlGroups, hasLimits, NO_LIMITS } from "../host/control-groups.ts";
import type { GuestKernel } from "../image/guest-kernel.ts";
import { sweepStaging } from "../host/staging.ts";
import { ImageStore } from "../image/store.ts";
import { FlatCache } from "../memory/flat.ts";
import { Network } from "../net/network.ts";
import { NO_NETWORK } from "../net/policy.ts";
import { hiddenFrom, type Hidden } from "../share/hidden.ts";
import type { Share } from "../share/server.ts";
import { checkShares } from "../share/source.ts";
import { SnapshotStore, type Snapshot } from "../snapshot/store.ts";
import { DEFAULT_PARALLELISM } from "../util/parallelism.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { ConfinementState } from "../vmm/driver.ts";
import { qemuCapabilities, type Capabilities } from "../vmm/qemu/capabilities.ts";
import { checkCompatible } from "../vmm/qemu/compatible.ts";
import { QemuEngine } from "../vmm/qemu/engine.ts";
import type { AcceleratorChoice } from "../vmm/qemu/probe.ts";
import { adoptSandbox, type SandboxRecord } from "./adopt.ts";
import { makeSnapshot, type SnapshotTimings } from "./boot.ts";
import { branchSandbox, type BranchOptions, type BranchResult } from "./branch.ts";
import { checkThere, handOver, letGo, startRawChild, type ForkContext, type HandOver } from "./fork.ts";
import { compactSnapshot } from "./compact.ts";
import { findGround, type Ground } from "./ground.ts";
import { Holds } from "./holds.ts";
import { Pool } from "./pool.ts";
import type { CreateSnapshotOptions, ForkOptions, ForkOutcome, RuntimeOptions } from "./runtime-options.ts";
import type { Sandbox } from "./sandbox.ts";
import { diskSize, machineShape } from "./shape.ts";
import { durableWorkplace, endChildrenOf, ownWorkplace, type Workplace } from "./workplace.ts";

const MAX_FORK = 1000;

type RuntimeParts = {
  home: Home;
  ground: Ground;
  workplace: Workplace;
  parallelism: number;
  network: Network;
  hidden: Hidden;
  onWarning: (message: string) => void;
  onGone: (sandbox: Sandbox) => void;
};

export class Runtime {
  readonly home: Home;
  readonly images: ImageStore;
  readonly snapshots: SnapshotStore;
  readonly flats: FlatCache;
  readonly accelerator: AcceleratorChoice;
  /** of the VMMs that this runtime starts */
  readonly confinement: ConfinementState;
  /** Throws CONFINEMENT_UNAVAILABLE where no VM may be started */
  readonly checkConfinement: () => void;
  readonly qemuVersion: string;
  readonly guestKernel: GuestKernel;
  readonly runDir: string;
  readonly pool: Pool;
  readonly network: Network;
  readonly groups: ControlGroups;
  readonly #workplace: Workplace;
  /** hears of every sandbox that is gone */
  readonly #forget: (sandbox: Sandbox) => void;
  readonly #onWarning: (message: string) => void;
  readonly #hidden: Hidden;
  readonly #engine: QemuEngine;
  readonly #forking: Semaphore;
  readonly #capturing: Semaphore;
  /** images are content-addressed, so a path once looked up stays right */
  readonly #rootfs = new Map<string, string>();
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly #holds = new Holds();
  readonly #qemu: string;
  #capabilities: Promise<Capabilities> | undefined;
  #requests = 0;
  #idleSince = performance.now();
  #closing: Promise<void> | undefined;

  private constructor(parts: RuntimeParts) {
    this.home = parts.home;
    const { qemu, guestKernel, accelerator, confinement, checkConfinement } = parts.ground;
    this.accelerator = accelerator;
    this.confinement = confinement;
    this.checkConfinement = checkConfinement;
    this.qemuVersion = qemu.version;
    this.#qemu = qemu.path;
    this.guestKernel = guestKernel;
    this.runDir = parts.workplace.runDir;
    this.#workplace = parts.workplace;
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
    const { flatDir, warden } = parts.workplace;
    this.flats = new FlatCache({ dir: flatDir, warden, snapshots: this.snapshots });
    this.#engine = new QemuEngine({ qemu, warden, confinement: confinement.kind, check: checkConfinement });
    const parents = async (): Promise<number[]> => [(await (await warden()).info()).pid];
    this.groups = new ControlGroups({ home: parts.home.root, parents });
    this.#forking = new Semaphore(parts.parallelism);
    this.#capturing = new Semaphore(Math.max(1, availableParallelism()));
    const idleSince = (): number | undefined => (this.#requests === 0 ? this.#idleSince : undefined);
    this.pool = new Pool({ context: this.#forkContext(), idleSince, onError: parts.onWarning });
  }

  /** Finds the engine, prepares the guest kernel, cleans up after a runtime that was killed */
  static async start(opts: RuntimeOptions = {}): Promise<Runtime> {
    const home = await prepareHome(opts.home ?? resolveHome());
    const onWarning = opts.onWarning ?? (() => undefined);
    const ground = await findGround(home, opts);
    const durable = opts.life === "durable";
    const workplace = durable ? await durableWorkplace(home, opts.onLost ?? (() => undefined)) : await ownWorkplace(home, onWarning);
    try {
      const { parallelism = DEFAULT_PARALLELISM, onGone = () => undefined } = opts;
      const network = new Network(opts.network);
      const hidden = await hiddenFrom(home);
      const runtime = new Runtime({ home, ground, workplace, parallelism, network, hidden, onWarning, onGone });
      await sweepStaging(home);
      await runtime.snapshots.sweep();
      return runtime;
    } catch (error) {
      await (workplace.leave ?? workplace.end)();
      throw error;
    }
  }

  get sandboxes(): Sandbox[] {
    return [...this.#sandboxes.values()];
  }

  /** Boots an image, warms it and freezes it under a tag */
  async createSnapshot(opts: CreateSnapshotOptions): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
    this.checkConfinement();
    const host = { engineVersion: this.qemuVersion, accelerator: this.accelerator.accelerator };
    const shape = machineShape(opts, host);
    const diskMiB = diskSize(opts.diskMiB);
    const image = await this.images.get(opts.image);
    const { home, snapshots, runDir, network } = this;
    const { warden, vmsDir } = this.#workplace;
    const context = { home, engine: this.#engine, warden, snapshots, runDir, vmsDir, network };
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
    this.checkConfinement();
    const snapshot = typeof from === "string" ? await this.snapshots.get(from) : from;
    checkCompatible(snapshot.manifest.tag, snapshot.manifest.shape, {
      qemuVersion: this.qemuVersion,
      accelerator: this.accelerator.accelerator,
    });
    const one = { ...opts, shares: await checkShares(opts.shares ?? [], this.home) };
    const forkAll = async (): Promise<ForkOutcome[]> => Promise.all(Array.from({ length: n }, async () => this.#forkOne(snapshot, one)));
    const outcomes = await this.#request(async () =>
      this.#holds.whileMaking(snapshot, async () => {
        await checkThere(snapshot);
        return forkAll();
      }),
    );
    const failed = outcomes.find((outcome) => outcome.error);
    if (!failed?.error || !opts.allOrNothing) return outcomes;
    await Promise.all(outcomes.map(async (outcome) => outcome.sandbox?.kill()));
    throw failed.error;
  }

  /** Forks one child, or throws why there is none */
  async forkOne(from: string | Snapshot, opts: Omit<ForkOptions, "n" | "allOrNothing"> = {}): Promise<Sandbox> {
    const [outcome] = await this.fork(from, opts);
    if (!outcome?.sandbox) throw outcome?.error ?? new ForkdError("FORK_FAILED", "No child was made.");
    return outcome.sandbox;
  }

  /** Takes a snapshot of a running sandbox, which goes on running */
  async branch(sandbox: Sandbox, tag: string | BranchOptions): Promise<BranchResult> {
    if (!sandbox.alive) throw new ForkdError("VMM_EXITED", `Cannot branch sandbox ${sandbox.id}: it has ended.`);
    const opts = typeof tag === "string" ? { tag } : tag;
    const { warden } = this.#workplace;
    const { home, snapshots, qemuVersion: engineVersion } = this;
    const context = { home, warden, snapshots, engineVersion, confinement: this.confinement.kind };
    const capture = async (): Promise<BranchResult> => this.#capturing.run(async () => branchSandbox(context, sandbox, opts));
    return this.#request(async () => this.#holds.whileMaking(sandbox.snapshot, capture));
  }

  /** A copy of a snapshot that builds on no other */
  async compact(from: Snapshot, opts: { tag: string; id?: string | undefined }): Promise<Snapshot> {
    const { home, snapshots, flats } = this;
    const context = { home, snapshots, flats, warden: this.#workplace.warden, confinement: this.confinement.kind };
    return this.#request(async () => this.#holds.whileMaking(from, async () => compactSnapshot(context, from, opts)));
  }

  /** Removes a snapshot that nothing uses */
  async removeSnapshot(name: string): Promise<void> {
    const id = await this.snapshots.idOf(name);
    const users = this.sandboxes.filter((sandbox) => sandbox.snapshot.manifest.id === id);
    if (users.length > 0) throw new ForkdError("IN_USE", `Cannot remove snapshot ${name}: ${users.length} sandboxes run from it.`);
    await this.#holds.whileRemoving(id, name, async () => {
      await this.snapshots.remove(name);
      await this.pool.drop(id);
      await this.flats.remove(id);
    });
  }

  /** Gives a snapshot another tag, unless it is being used or removed just now */
  async renameSnapshot(tag: string, to: string): Promise<Snapshot> {
    const id = await this.snapshots.idOf(tag);
    return this.#holds.whileRemoving(id, tag, async () => this.snapshots.rename(tag, to));
  }

  /** What the engine can emulate here */
  async capabilities(): Promise<Capabilities> {
    this.#capabilities ??= qemuCapabilities(this.#qemu, this.accelerator.accelerator);
    try {
      return await this.#capabilities;
    } catch (error) {
      this.#capabilities = undefined;
      throw error;
    }
  }

  /** whether something is being made from it, or it is being removed */
  isHeld(snapshotId: string): boolean {
    return this.#holds.isHeld(snapshotId);
  }

  /** Takes over a sandbox of an earlier process, or says why it is no more */
  async adopt(record: SandboxRecord): Promise<Sandbox | string> {
    const { warden, vmsDir } = this.#workplace;
    const { groups, flats, runDir, network } = this;
    const common = { hidden: this.#hidden, onWarning: this.#onWarning, onGone: this.#forget };
    const adopted = await adoptSandbox({ engine: this.#engine, warden, flats, runDir, vmsDir, network, groups, ...common }, record);
    if (typeof adopted !== "string" && adopted.alive) this.#sandboxes.set(adopted.id, adopted);
    return adopted;
  }

  /** Ends the VMs of an earlier process that nobody adopted, and removes what they left; returns how many */
  async endOthers(): Promise<number> {
    const own = new Set(this.sandboxes.map((sandbox) => sandbox.vm.pid));
    const ended = await endChildrenOf(await this.#workplace.warden(), own);
    for (const dir of [this.runDir, this.#workplace.vmsDir])
      for (const name of await readdir(dir)) {
        if (name.startsWith("sb-") && !this.#sandboxes.has(name)) await rm(join(dir, name), { recursive: true, force: true });
      }
    await this.groups.sweep(new Set(this.#sandboxes.keys()));
    await this.flats.sweep();
    return ended;
  }

  /** Leaves the sandboxes running for the next process */
  async leave(): Promise<void> {
    const { leave } = this.#workplace;
    if (!leave) throw new ForkdError("BAD_REQUEST", "Cannot leave these sandboxes: they end with this process.");
    this.#closing ??= this.#leave(leave);
    return this.#closing;
  }

  async #leave(disconnect: () => Promise<void>): Promise<void> {
    await this.pool.close();
    // without VMs there is nothing to be found again
    if (this.sandboxes.length === 0) return this.#workplace.end();
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
    const ends = await Promise.allSettled([this.pool.close(), ...this.sandboxes.map(async (sandbox) => sandbox.kill())]);
    // whatever could not be ended one by one ends with the warden
    await this.#workplace.end();
    const failed = ends.find((end) => end.status === "rejected");
    if (failed) throw failed.reason;
  }

  async #forkOne(snapshot: Snapshot, opts: ForkOptions & { shares: readonly Share[] }): Promise<ForkOutcome> {
    const startedAt = performance.now();
    try {
      const sandbox = await this.#forking.run(async () => {
        opts.signal?.throwIfAborted();
        if (this.#closing) throw new ForkdError("CANCELLED", "Cannot fork: the runtime is closing.");
        const { env = {}, network: policy, shares, as, signal, limits = NO_LIMITS } = opts;
        const host = { network: this.network, hidden: this.#hidden, onGone: this.#forget };
        const over: HandOver = { snapshot, env, policy, shares, as, ...host, startedAt, signal };
        // what waits in the pool was started outside any group, as somebody new
        const pooled = hasLimits(limits) || as ? undefined : this.pool.take(snapshot);
        const sandbox = pooled && (await letGo(pooled, over));
        return sandbox ?? handOver(await startRawChild(this.#forkContext(), snapshot, "run", { id: as?.id, limits }), over);
      });
      // one that ended at once was already forgotten
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
    return { engine: this.#engine, flats, runDir, vmsDir: this.#workplace.vmsDir, groups, rootfsOf };
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
