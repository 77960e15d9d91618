// Branches: snapshots of a running sandbox.

import { mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { layersIn } from "../disk/layer.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { KernelFacts } from "../agent/kernel/kernel.ts";
import type { Home } from "../home.ts";
import type { WardenSource } from "../warden/source.ts";
import type { Warden } from "../warden/warden.ts";
import { linkEarlier, sharedSizes } from "../snapshot/deltas.ts";
import { SNAPSHOT_VERSION, type SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import { withStaging } from "../host/staging.ts";
import { byFork, canFork, ForkFailed, type BranchForkContext } from "./branch-fork.ts";
import { byFrozenCopy, canFreeze } from "./branch-frozen.ts";
import { byCopy, type Memory, type Method } from "./branch-method.ts";
import { PREPARED_WITHIN_MS, step, STEP_WITHIN_MS } from "./branch-step.ts";
import { deltasAbove } from "./memory-image.ts";
import type { Sandbox } from "./sandbox.ts";

/** Added to the limit of a step inside the pause, per page */
const PAGE_WITHIN_MS = 0.002;
/**
 * The limit if the source's processes are held, or if the source is about to end: there a failure costs more than a
 * wait
 */
const HELD_STEP_WITHIN_MS = 30_000;
/** Number of earlier branches that are tried for shared delta files */
const KNOWN_BRANCHES = 8;
/**
 * A disk with more layers is flattened: each layer is a file that every fork opens and that reads may have to search
 */
const MAX_LAYERS = 16;

export type BranchContext = BranchForkContext & {
  home: Home;
  warden: WardenSource;
  snapshots: SnapshotStore;
  onWarning: (message: string) => void;
};

export type BranchResult = {
  snapshot: Snapshot;
  /** from the stop request until the guest runs again, measured on the host */
  pauseMs: number;
  /** pages that differ from the snapshot the source was forked from */
  changedPages: number;
  /** pages copied again inside the pause, because they changed after the first copy; none if the VMM was copied */
  recopiedPages: number;
  /** where the memory was taken from: a copy of the VMM, a frozen copy that has only the memory, or the source's own VMM */
  takenFrom: "fork" | "frozen" | "source";
  /** bytes added to the store for memory: pages that changed since the source's previous branch */
  deltaBytes: number;
};

export type BranchOptions = {
  tag: string;
  /** id of the new snapshot */
  id?: string | undefined;
  /** works of different queues take turns; default: one queue */
  queue?: string | undefined;
  /** called as soon as the source runs again, before the snapshot is complete */
  onResumed?: ((pauseMs: number) => void) | undefined;
  /**
   * holds the source's processes around the pause; in forks they stay held until clock and randomness are independent
   */
  hold?: boolean | undefined;
  /** the source stays stopped unless the branch fails: it is about to be ended */
  stayPaused?: boolean | undefined;
};

/** Creates a snapshot. On failure the source keeps running and no snapshot with that tag exists */
export async function branchSandbox(context: BranchContext, sandbox: Sandbox, opts: BranchOptions): Promise<BranchResult> {
  await context.snapshots.reserve(opts.tag);
  try {
    return await sandbox.branching.run(async () => withStaging(context.home, async (staging) => capture(context, sandbox, opts, staging)));
  } catch (error) {
    if (error instanceof ForkdError && error.code !== "VMM_FAILED") throw error;
    throw new ForkdError("BRANCH_FAILED", `Cannot branch sandbox ${sandbox.id}: ${messageOf(error)}`, { cause: error });
  } finally {
    await context.snapshots.release(opts.tag);
  }
}

async function capture(context: BranchContext, sandbox: Sandbox, opts: BranchOptions, staging: string): Promise<BranchResult> {
  try {
    return await captureAll(context, sandbox, opts, staging);
  } catch (error) {
    if (sandbox.alive) await settleDisk(sandbox);
    if (!opts.stayPaused) void sandbox.afterBranch();
    throw error;
  }
}

async function captureAll(context: BranchContext, sandbox: Sandbox, opts: BranchOptions, staging: string): Promise<BranchResult> {
  const takenFrom = methodFor(context, sandbox, opts);
  if (takenFrom === "source") return attempt(context, sandbox, opts, join(staging, "snapshot"), takenFrom);
  let isAcknowledged = false;
  const onResumed = (pauseMs: number): void => {
    isAcknowledged = opts.onResumed !== undefined;
    opts.onResumed?.(pauseMs);
  };
  try {
    return await attempt(context, sandbox, { ...opts, onResumed }, join(staging, "copied"), takenFrom);
  } catch (error) {
    if (!(error instanceof ForkFailed)) throw error;
    if (!error.isTransient) sandbox.forkObstacle = error.message;
    // the client got the answer that the snapshot has the state of that moment
    if (isAcknowledged || !sandbox.alive) throw error.cause;
    context.onWarning(`The VMM of sandbox ${sandbox.id} is not copied for a branch: ${error.message}`);
  }
  await settleDisk(sandbox);
  return attempt(context, sandbox, opts, join(staging, "snapshot"), "source");
}

function methodFor({ engine }: BranchContext, sandbox: Sandbox, opts: BranchOptions): BranchResult["takenFrom"] {
  if (canFork(sandbox, opts)) return "fork";
  return canFreeze(engine, sandbox, opts) ? "frozen" : "source";
}

async function attempt(
  context: BranchContext,
  sandbox: Sandbox,
  opts: BranchOptions,
  dir: string,
  takenFrom: BranchResult["takenFrom"],
): Promise<BranchResult> {
  const { vm, snapshot: source } = sandbox;
  await mkdir(dir, { mode: 0o700 });
  const deltaPath = join(dir, "memory.delta");
  const deviceState = join(dir, "device.state");
  await step("prepare", vm.prepare());
  // Branching resumes the source, so refuse one that a user has paused.
  if (!(await step("state", vm.isRunning()))) throw new ForkdError("SANDBOX_PAUSED", `Cannot branch sandbox ${sandbox.id}: it is paused.`);
  // a suspended sandbox is resumed under its own identity, so the clock's drift does not matter
  const [drift, sample] = opts.stayPaused ? [] : await Promise.all([sandbox.clock.recheck(), sandbox.expectBranch()]);
  if (sandbox.disk) await step("disk", sandbox.disk.prepare(vm.disk), PREPARED_WITHIN_MS);
  await step("contexts", sandbox.contexts.known());
  const below = await deltasAbove(context.snapshots, source, sandbox.imageOf.manifest.id);
  const earlier = await shareEarlier(context, sandbox, dir);
  const warden = await context.warden();
  const memory = {
    ramPath: sandbox.memoryPath,
    ramBytes: source.manifest.shape.memoryMiB * 1024 * 1024,
    deltaPath,
    below,
    earlier: earlier.paths,
    isSameAs: earlier.id ?? source.manifest.id,
  };
  const method = await begin(context, warden, sandbox, memory, takenFrom);
  try {
    const network = sandbox.network.policy;
    if (opts.hold) await sandbox.holdProcesses();
    const limitMs = (opts.hold || opts.stayPaused ? HELD_STEP_WITHIN_MS : STEP_WITHIN_MS) + Math.ceil(method.pages * PAGE_WITHIN_MS);
    const { stopMs, pauseMs, recopiedPages, kernels } = await pauseAndTake(sandbox, opts, limitMs, method);
    if (!opts.stayPaused) {
      void sandbox.setClock();
      // after the clock is set, because this releases held processes
      void sandbox.afterBranch();
    }
    opts.onResumed?.(pauseMs);
    const [disk, { bytes, pages }] = await both(saveDisk(context, sandbox, dir, opts), method.save(deviceState));
    const manifest: SnapshotManifest = {
      ...source.manifest,
      version: SNAPSHOT_VERSION,
      id: opts.id ?? newId("sn"),
      tag: opts.tag,
      name: undefined,
      createdAt: new Date().toISOString(),
      // the current engine wrote the device state, maybe a newer one than the source's snapshot had
      shape: { ...source.manifest.shape, engineVersion: context.engine.version },
      memory: { kind: "delta", base: source.manifest.id, pages, bytes, earlier: earlier.sizes },
      disk,
      deviceStateBytes: (await stat(deviceState)).size,
      kernels,
      env: sandbox.env,
      clock: drift ?? source.manifest.clock,
      // the guest's clock ran at least from the sample to the stop request
      stoppedAtMs: sample && sample.guestMs + Math.max(0, stopMs - sample.toMs),
      network,
      mounts: sandbox.shares.map(({ target }) => target),
      branchedFrom: sandbox.id,
      depth: source.manifest.depth + 1,
    };
    const snapshot = await context.snapshots.publish(dir, manifest);
    sandbox.branches = [manifest.id, ...sandbox.branches].slice(0, KNOWN_BRANCHES);
    await method.complete(snapshot);
    return { snapshot, pauseMs, changedPages: pages, recopiedPages, deltaBytes: bytes, takenFrom };
  } catch (error) {
    await method.abort();
    if (opts.stayPaused && sandbox.alive) await goOn(sandbox);
    throw error;
  }
}

async function begin(
  context: BranchContext,
  warden: Warden,
  sandbox: Sandbox,
  memory: Memory,
  takenFrom: BranchResult["takenFrom"],
): Promise<Method> {
  if (takenFrom === "fork") return byFork(context, warden, sandbox, memory);
  if (takenFrom === "frozen") return byFrozenCopy(context.engine, warden, sandbox, memory);
  return byCopy(warden, sandbox, memory);
}

/** Both results; after a failure of one, when the other has ended too: nothing may be written any more */
async function both<A, B>(one: Promise<A>, other: Promise<B>): Promise<[A, B]> {
  const [first, second] = await Promise.allSettled([one, other]);
  if (second.status === "rejected") throw second.reason;
  if (first.status === "rejected") throw first.reason;
  return [first.value, second.value];
}

/**
 * Links the delta files of the previous branch into the new snapshot's folder; links none if all pages have to be
 * stored
 */
async function shareEarlier(
  { snapshots }: BranchContext,
  { branches, snapshot: source }: Sandbox,
  dir: string,
): Promise<{ id?: string; paths: string[]; sizes: number[] | undefined }> {
  let previous: Snapshot | undefined;
  // the newest branch that still exists: ephemeral branches are removed with their forks
  for (const id of branches) if ((previous = await snapshots.shareable(id))) break;
  const sizes = previous && sharedSizes(previous.manifest, source.manifest);
  const paths = previous && sizes && (await linkEarlier(previous.deltas, dir));
  return previous && paths ? { id: previous.manifest.id, paths, sizes } : { paths: [], sizes: undefined };
}

/**
 * Settles the disk after a failed freeze. If the VMM does not answer, the layer stays: the next branch settles it first
 */
async function settleDisk({ disk, vm }: Sandbox): Promise<void> {
  try {
    if (disk) await step("disk", disk.settle(vm.disk));
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
  }
}

/** `stopMs`: time of the stop request */
type Pause = { stopMs: number; pauseMs: number; recopiedPages: number; kernels: KernelFacts[] };

/** The pause. Resumes the guest after a failure too */
async function pauseAndTake(sandbox: Sandbox, opts: BranchOptions, limitMs: number, method: Method): Promise<Pause> {
  const from = performance.now();
  let recopiedPages = 0;
  let complete = false;
  // an eval that runs before or after the stop may be in the snapshot
  const before = sandbox.contexts.facts;
  let kernels = before;
  using cleanup = new DisposableStack();
  cleanup.use(sandbox.holdOutput());
  try {
    await step("stop", sandbox.pause(), limitMs);
    const wasBusy = new Set(before.filter((facts) => facts.busy).map((facts) => facts.context));
    kernels = sandbox.contexts.facts.map((facts) => ({ ...facts, busy: facts.busy || wasBusy.has(facts.context) }));
    recopiedPages = await method.take(limitMs);
    complete = true;
  } finally {
    if (!complete || !opts.stayPaused) await goOn(sandbox);
  }
  return { stopMs: from, pauseMs: performance.now() - from, recopiedPages, kernels };
}

/** Adds the frozen layers to the snapshot. A stack with too many layers is flattened, in the source too */
async function saveDisk(context: BranchContext, sandbox: Sandbox, dir: string, opts: BranchOptions): Promise<SnapshotManifest["disk"]> {
  const { disk, vm } = sandbox;
  if (!disk) return null;
  const layers = await disk.saveFrozen(vm.disk, dir);
  const { sizeMiB } = disk;
  if (layers.length <= MAX_LAYERS) return { sizeMiB, layers };
  const old = layersIn(dir, layers);
  const flat = await context.engine.flatten(old, sizeMiB, dir);
  for (const { path } of old) await rm(path);
  if (!opts.stayPaused) await unlessGone(sandbox, disk.restack(vm.disk, flat));
  return { sizeMiB, layers: [flat.id] };
}

/** Ignores the end of the source: the snapshot is already complete */
async function unlessGone(sandbox: Sandbox, work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    const hasEnded = !sandbox.alive || (error instanceof ForkdError && error.code === "VMM_EXITED");
    if (!hasEnded) throw error;
  }
}

/**
 * Resumes the source. After a timeout the command still executes; if it cannot be sent the source would stay paused, so
 * it is ended
 */
async function goOn(sandbox: Sandbox): Promise<void> {
  try {
    await step("resume", sandbox.resume());
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code === "BRANCH_FAILED") throw error;
    await sandbox.kill();
    throw new ForkdError("VMM_EXITED", `Sandbox ${sandbox.id} could not continue after a branch and was ended: ${error.message}`, {
      cause: error,
    });
  }
}
