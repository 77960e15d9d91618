// The service layer on a real store and a real runtime with the fake engine.

import { collectGarbage } from "../../../src/service/gc.ts";
import { Branches } from "../../../src/service/branches.ts";
import { Images } from "../../../src/service/images.ts";
import { Limits } from "../../../src/service/limits.ts";
import { Packs } from "../../../src/service/packs.ts";
import { Sandboxes, type Usable } from "../../../src/service/sandboxes.ts";
import { Snapshots } from "../../../src/service/snapshots.ts";
import { Suspension } from "../../../src/service/suspension.ts";
import { Workspaces } from "../../../src/service/workspaces.ts";
import { Tokens } from "../../../src/store/tokens.ts";
import { Runtime } from "@forkd/runtime/runtime";
import { newId } from "@forkd/runtime/util/id";
import { fakeHost } from "../../../../../tests/helpers/fake-engine.ts";
import { openStore, type Restarted } from "../../../../../tests/helpers/restart.ts";
import { FakeHome, HOST, pieces } from "../../../../runtime/test/pack/fake.ts";
import type { SandboxInfo } from "../../../src/api/sandbox.ts";
import type { SnapshotInfo } from "../../../src/api/snapshot.ts";
import type { Home } from "@forkd/runtime/home";
import type { Caller } from "../../../src/service/caller.ts";
import type { BranchOptions, BranchResult } from "@forkd/runtime/sandbox/branch";
import type { Snapshot } from "@forkd/runtime/snapshot/store";

export const CALLER: Caller = {
  principal: "local",
  project: "default",
  isOperator: true,
  maxSandboxes: null,
  requestId: "r",
  signal: new AbortController().signal,
};

const SETTINGS = {
  maxSandboxes: 100,
  maxSuspended: 100,
  maxSnapshots: 100,
  maxMemoryMiB: null,
  maxDiskMiB: null,
  minFreeMiB: 0,
  branchConcurrency: 4,
  packTrust: "any",
  packCacheMiB: 16,
};

/** The part of a running VM that the service uses */
class FakeSandbox {
  readonly id: string;
  readonly snapshot: Snapshot;
  alive = true;
  isRunning = true;
  readonly vm = { pid: 1, startTime: "1" };
  readonly clock = { rate: undefined };
  readonly env = {};
  readonly shares = [];
  readonly kernels = [];
  readonly forkMs = 1;
  readonly isolation = "emulated";
  readonly certificate = { identity: { machine_id: "0".repeat(32), boot_id: "b" } };
  readonly network = { policy: { mode: "none", allow: [], egressLimitBytes: null }, spent: 0, leased: 0 };

  constructor(snapshot: Snapshot, id: string = newId("sb")) {
    this.snapshot = snapshot;
    this.id = id;
  }

  async resume(): Promise<void> {
    this.isRunning = true;
  }

  async kill(): Promise<void> {
    this.alive = false;
    this.isRunning = false;
  }
}

export class World implements AsyncDisposable {
  readonly fake: FakeHome;
  readonly store: Restarted;
  readonly snapshots: Snapshots;
  readonly sandboxes: Sandboxes;
  readonly branches: Branches;
  readonly suspension: Suspension;
  readonly workspaces: Workspaces;
  readonly packs: Packs;
  readonly tokens: Tokens;

  readonly #runtime: Runtime | undefined;

  private constructor(fake: FakeHome, runtime?: Runtime) {
    this.fake = fake;
    this.#runtime = runtime;
    this.store = openStore(
      fake.stores.home,
      runtime ?? {
        ...HOST,
        accelerator: { accelerator: "tcg", reason: "asked for" },
        confinement: { kind: "none", reason: "there are no VMs" },
        checkStart: () => undefined,
        groups: { check: async () => undefined },
        flats: { unused: async () => [], evict: async () => undefined },
        guestKernel: { id: "k" },
        sandboxes: [],
        zygotes: { make: async () => undefined },
        network: {},
        fork: async (from: Snapshot) => [{ sandbox: new FakeSandbox(from) }],
        forkOne: async (from: Snapshot, { as }: { as: { id: string } }) => new FakeSandbox(from, as.id),
        renameSnapshot: async (tag: string, to: string, opts: { replace?: boolean }) => this.store.snapshots.rename(tag, to, opts),
        compact: async (_from: Snapshot, { tag, id }: { tag: string; id: string }) => fake.base(tag, { id }),
        branch: async (sandbox: FakeSandbox, opts: BranchOptions) => branch(fake, sandbox, opts),
      },
    );
    const { core, registry, lineage } = this.store;
    const silent = (): void => undefined;
    Object.assign(core, { settings: SETTINGS, maxSandboxesOf: () => null, meter: { forked: silent, branched: silent } });
    this.snapshots = new Snapshots(core, { lineage, images: new Images(core) });
    const collectAfter = async (id: string): Promise<void> => lineage.collectAfter(id);
    const usable: Usable = { forkable: async (tag, viewer) => this.snapshots.forkable(tag, viewer), collectAfter };
    const limits = new Limits(core, registry);
    this.sandboxes = new Sandboxes(core, { registry, limits, snapshots: usable, wake: async (entry) => this.suspension.wake(entry) });
    const parts = { registry, limits, sandboxes: this.sandboxes, snapshots: this.snapshots, lineage };
    this.branches = new Branches(core, parts);
    this.suspension = new Suspension(core, { ...parts, branches: this.branches });
    this.workspaces = new Workspaces(core, { ...parts, branches: this.branches });
    this.packs = new Packs(core, parts);
    this.tokens = new Tokens(core.db);
  }

  static async make(): Promise<World> {
    const fake = await FakeHome.make();
    return new World(fake, await Runtime.start({ home: fake.stores.home, host: fakeHost() }));
  }

  /**
   * In an existing folder and without child processes: this process writes all files, so that a recorder sees every
   * write
   */
  static async alone(at: string): Promise<World> {
    return new World(await FakeHome.make(at));
  }

  get home(): Home {
    return this.fake.stores.home;
  }

  /** A snapshot as a boot creates it, with its row */
  async create(tag: string, { disk = false } = {}): Promise<SnapshotInfo> {
    const row = this.snapshots.newRow({ tag, memory_mib: 4, vcpus: 1 }, CALLER);
    return this.snapshots.writing(row, CALLER, async () => {
      return { snapshot: await this.fake.base(tag, { id: row.id, disk }), changes: {}, status: 201 };
    });
  }

  async fork(tag: string, caller = CALLER): Promise<SandboxInfo> {
    const [info] = await this.sandboxes.create({ snapshot_tag: tag, n: 1 } as Parameters<Sandboxes["create"]>[0], caller);
    if (!info) throw new Error("no sandbox was made");
    return info;
  }

  async unpack(bytes: Buffer, tag: string): Promise<void> {
    await this.packs.unpack(pieces(bytes), { tag, force: true }, CALLER);
  }

  async gc(): Promise<void> {
    await collectGarbage(this.store.core, this.store.lineage, false);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.store.lineage.settled();
    await this.#runtime?.close();
    this.store[Symbol.dispose]();
    await this.fake[Symbol.asyncDispose]();
  }
}

async function branch(fake: FakeHome, sandbox: FakeSandbox, { tag, id, stayPaused, onResumed }: BranchOptions): Promise<BranchResult> {
  sandbox.isRunning = !stayPaused;
  onResumed?.(1);
  const snapshot = await fake.branch(tag, sandbox.snapshot, { id });
  return { snapshot, pauseMs: 1, changedPages: 1, recopiedPages: 0, deltaBytes: 4096, takenFrom: "source" };
}
