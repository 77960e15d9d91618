// A snapshot of a running sandbox, which goes on running.

import { mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { ConvertHost } from "../disk/convert.ts";
import { flattenLayers } from "../disk/flatten.ts";
import { layersIn } from "../disk/layer.ts";
import { ForkdError, messageOf } from "../errors.ts";
import { within } from "../guest/connection.ts";
import type { KernelFacts } from "../guest/kernel.ts";
import type { Home } from "../home.ts";
import { SNAPSHOT_VERSION, type SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import { withStaging } from "../host/staging.ts";
import type { Sandbox } from "./sandbox.ts";

/** how long the VMM may take for one step, and for each page inside the pause: a source that cannot be saved must run on soon */
const STEP_WITHIN_MS = 900;
const PAGE_WITHIN_MS = 0.002;
/** A disk of more layers is stored as one: each layer is a file that every fork opens and every read may have to look into */
const MAX_LAYERS = 16;

export type BranchContext = ConvertHost & { home: Home; snapshots: SnapshotStore; engineVersion: string };

export type BranchResult = {
  snapshot: Snapshot;
  /** from the request to stop until the guest ran again, as the host sees it */
  pauseMs: number;
  /** pages that differ from the snapshot the source was forked from */
  changedPages: number;
  /** those of them that were copied inside the pause, since they changed after the first copy */
  recopiedPages: number;
  /** bytes of the stored delta */
  deltaBytes: number;
};

export type BranchOptions = {
  tag: string;
  /** of the new snapshot */
  id?: string | undefined;
  /** called as soon as the source runs again, before the snapshot is complete */
  onResumed?: ((pauseMs: number) => void) | undefined;
  /** the source stays stopped unless something fails: it is about to be ended */
  stayPaused?: boolean | undefined;
};

/** Makes a snapshot; when anything fails the source runs on and no snapshot of that tag exists */
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
    if (sandbox.alive) await sandbox.disk?.settle(sandbox.vm.disk);
    throw error;
  }
}

async function captureAll(context: BranchContext, sandbox: Sandbox, opts: BranchOptions, staging: string): Promise<BranchResult> {
  const { vm, snapshot: source } = sandbox;
  const dir = join(staging, "snapshot");
  await mkdir(dir, { mode: 0o700 });
  const deltaPath = join(dir, "memory.delta");
  const deviceState = join(dir, "device.state");
  await step("prepare", vm.prepare());
  // a branch ends with the source running, which one that somebody paused must not
  if (!(await step("state", vm.isRunning()))) throw new ForkdError("SANDBOX_PAUSED", `Cannot branch sandbox ${sandbox.id}: it is paused.`);
  if (sandbox.disk) await step("disk", sandbox.disk.prepare(vm.disk));
  await step("contexts", sandbox.contexts.known());
  const warden = await context.warden();
  const begun = await warden.captureBegin({
    pid: vm.pid,
    ramPath: sandbox.memoryPath,
    ramBytes: source.manifest.shape.memoryMiB * 1024 * 1024,
    deltaPath,
  });
  try {
    const network = sandbox.network.policy;
    const { pauseMs, recopiedPages, kernels } = await pauseAndFinish(sandbox, opts, async () =>
      step("memory", begun.finish(), begun.pages * PAGE_WITHIN_MS),
    );
    if (!opts.stayPaused) void sandbox.setClock();
    opts.onResumed?.(pauseMs);
    await vm.takeDeviceState(deviceState);
    const disk = await saveDisk(context, sandbox, dir, opts);
    const { bytes, pages } = await begun.commit();
    const manifest: SnapshotManifest = {
      ...source.manifest,
      version: SNAPSHOT_VERSION,
      id: opts.id ?? newId("sn"),
      tag: opts.tag,
      name: undefined,
      createdAt: new Date().toISOString(),
      // the device state was written by the engine of now
      shape: { ...source.manifest.shape, engineVersion: context.engineVersion },
      memory: { kind: "delta", base: source.manifest.id, pages, bytes },
      disk,
      deviceStateBytes: (await stat(deviceState)).size,
      kernels,
      env: sandbox.env,
      network,
      mounts: sandbox.shares.map(({ target }) => target),
      branchedFrom: sandbox.id,
      depth: source.manifest.depth + 1,
    };
    return { snapshot: await context.snapshots.publish(dir, manifest), pauseMs, changedPages: pages, recopiedPages, deltaBytes: bytes };
  } catch (error) {
    await begun.abort();
    if (opts.stayPaused && sandbox.alive) await goOn(sandbox);
    throw error;
  }
}

type Pause = { pauseMs: number; recopiedPages: number; kernels: KernelFacts[] };

/** The pause itself: disk, device state and changed pages are saved at the same time, and the guest goes on whatever happens */
async function pauseAndFinish(sandbox: Sandbox, opts: BranchOptions, finish: () => Promise<{ recopied: number }>): Promise<Pause> {
  const { vm } = sandbox;
  const from = performance.now();
  let recopiedPages = 0;
  let complete = false;
  // an eval that is under way before or after the stop may be in the snapshot
  const before = sandbox.contexts.facts;
  let kernels = before;
  try {
    await step("stop", vm.pause());
    const wasBusy = new Set(before.filter((facts) => facts.busy).map((facts) => facts.context));
    kernels = sandbox.contexts.facts.map((facts) => ({ ...facts, busy: facts.busy || wasBusy.has(facts.context) }));
    const freeze = sandbox.disk?.freeze(vm.disk) ?? Promise.resolve();
    const saves = [step("disk", freeze), step("device state", vm.saveDeviceState())];
    const [finished] = await Promise.all([finish(), ...saves]);
    recopiedPages = finished.recopied;
    complete = true;
  } finally {
    if (!complete || !opts.stayPaused) await goOn(sandbox);
  }
  return { pauseMs: performance.now() - from, recopiedPages, kernels };
}

/** What was frozen becomes part of the snapshot; a stack that has grown too high becomes one layer, also in the source */
async function saveDisk(context: BranchContext, sandbox: Sandbox, dir: string, opts: BranchOptions): Promise<SnapshotManifest["disk"]> {
  const { disk, vm } = sandbox;
  if (!disk) return null;
  const layers = await disk.saveFrozen(dir);
  const { sizeMiB } = disk;
  if (layers.length <= MAX_LAYERS) return { sizeMiB, layers };
  const old = layersIn(dir, layers);
  const flat = await flattenLayers(old, sizeMiB, dir, context);
  for (const { path } of old) await rm(path);
  if (!opts.stayPaused) await unlessGone(sandbox, disk.restack(vm.disk, flat));
  return { sizeMiB, layers: [flat.id] };
}

/** The snapshot is complete: a source that ends meanwhile takes nothing from it */
async function unlessGone(sandbox: Sandbox, work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    const hasEnded = !sandbox.alive || (error instanceof ForkdError && error.code === "VMM_EXITED");
    if (!hasEnded) throw error;
  }
}

/** A command that was sent is carried out, if late; one that cannot be sent would leave the source standing for ever */
async function goOn(sandbox: Sandbox): Promise<void> {
  try {
    await step("resume", sandbox.vm.resume());
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code === "BRANCH_FAILED") throw error;
    await sandbox.kill();
    throw new ForkdError("VMM_EXITED", `Sandbox ${sandbox.id} could not go on after a branch and was ended: ${error.message}`, {
      cause: error,
    });
  }
}

async function step<V>(name: string, work: Promise<V>, extraMs = 0): Promise<V> {
  const limit = STEP_WITHIN_MS + Math.ceil(extraMs);
  return within(work, limit, undefined, () => new ForkdError("BRANCH_FAILED", `The step "${name}" did not end within ${limit} ms.`));
}
