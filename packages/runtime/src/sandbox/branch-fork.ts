// A branch by a fork of the source's VMM. The source is stopped only while it is copied. The copy stays stopped: device state
// and memory are saved from it when the source runs again, and then children of the branch are cloned from it.

import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import { newId } from "../util/id.ts";
import { WardenFault } from "../warden/channel.ts";
import type { Warden } from "../warden/warden.ts";
import type { ForkSpec, Vm } from "../vmm/driver.ts";
import type { Memory, Method } from "./branch-method.ts";
import { PREPARED_WITHIN_MS, step } from "./branch-step.ts";
import type { SandboxDisk } from "./disk.ts";
import type { ForkContext, HeldVm } from "./fork.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Zygotes } from "./zygotes.ts";

const PAGE = 4096;
/** A VMM without its guest's memory */
const VMM_BYTES = 32 * 1024 * 1024;
/** A child of a branch compares its pages with so many deltas when it is branched itself; with more, children are restored */
const MAX_DELTAS = 16;
/** The copy saves while other VMs run, so it has more time than a stopped source */
const SAVED_WITHIN_MS = 30_000;

export type BranchForkContext = Pick<ForkContext, "engine" | "flats" | "runDir" | "vmsDir"> & {
  zygotes: Pick<Zygotes, "adopt" | "copyFor">;
};

/** The source could not be copied, or the copy not be saved; the source runs, or is about to be resumed */
export class ForkFailed extends Error {
  /** the same may succeed later */
  readonly isTransient: boolean;

  constructor(cause: unknown) {
    super(messageOf(cause), { cause });
    const inner = cause instanceof Error ? cause.cause : undefined;
    this.isTransient = inner instanceof WardenFault && inner.code === "EAGAIN";
  }
}

export type CopyOptions = { hold?: boolean | undefined; stayPaused?: boolean | undefined };

/** Whether a copy can be tried */
export function canFork(source: Sandbox, opts: CopyOptions): boolean {
  return source.vm.isClonable && mayCopy(source, opts);
}

/** Whether a copy of any kind can be of use */
export function mayCopy({ isLimited, forkObstacle, snapshot }: Sandbox, opts: CopyOptions): boolean {
  // A held branch gets a rehearsed zygote, its guest writes little meanwhile, and a source that stays paused gains nothing.
  if (opts.hold || opts.stayPaused) return false;
  // In a control group, pages that source and copy no longer share would count against the source's limit. Huge pages would
  // be split.
  return forkObstacle === null && !isLimited && !snapshot.manifest.shape.hugepages;
}

export async function byFork(context: BranchForkContext, warden: Warden, source: Sandbox, memory: Memory): Promise<Method> {
  try {
    return await prepare(context, warden, source, memory);
  } catch (error) {
    throw new ForkFailed(error);
  }
}

async function prepare(context: BranchForkContext, warden: Warden, source: Sandbox, memory: Memory): Promise<Method> {
  const { engine, flats, runDir, vmsDir, zygotes } = context;
  const { imageOf, vm } = source;
  const id = newId("zy");
  const dir = join(runDir, id);
  const image = await flats.acquire(imageOf);
  const spec: ForkSpec = { dir, memory: image.path, active: null, next: null };
  let disk: SandboxDisk | null = null;
  let forking: Promise<Vm> | undefined;
  let isHeld = false;
  let bytes = 0;
  const abort = async (): Promise<void> => {
    const made = await forking?.catch(() => undefined); // take() has thrown it
    await made?.kill();
    image.release();
    await rm(dir, { recursive: true, force: true });
    await disk?.remove();
  };
  const saveState = async (copy: Vm, deviceState: string): Promise<void> => {
    await copy.saveDeviceState();
    await copy.takeDeviceState(deviceState);
    if ((memory.below?.length ?? 0) + (memory.earlier?.length ?? 0) >= MAX_DELTAS) return;
    copy.detach();
    try {
      await engine.hold(copy);
      isHeld = true;
    } catch {
      // children are restored
    }
  };
  try {
    await mkdir(dir, { mode: 0o700 });
    if (source.disk) {
      const copied = await source.disk.forCopy(join(vmsDir, id));
      disk = copied.disk;
      spec.next = copied.next;
      spec.active = disk.spec.active;
    }
    await step("fork", engine.prepareFork(vm, spec), PREPARED_WITHIN_MS);
  } catch (error) {
    await abort();
    throw error;
  }
  return {
    pages: memory.ramBytes / PAGE,
    take: async (limitMs) => {
      await step("disk", source.disk?.freeze(vm.disk) ?? Promise.resolve(), limitMs);
      try {
        forking = engine.fork(vm, spec);
        await step("fork", forking, limitMs);
        return 0;
      } catch (error) {
        throw new ForkFailed(error);
      }
    },
    save: async (deviceState) => {
      try {
        const copy = await forking;
        if (!copy) throw new Error("There is no copy of the source.");
        // pages that both have in common need not be compared
        const alike = zygotes.copyFor(memory.isSameAs);
        const [captured] = await Promise.all([
          warden.capture({ pid: copy.pid, ...memory, alike: alike?.pid }),
          step("device state", saveState(copy, deviceState), SAVED_WITHIN_MS),
        ]);
        bytes = captured.privatePages * PAGE + VMM_BYTES;
        return captured;
      } catch (error) {
        throw new ForkFailed(error);
      }
    },
    complete: async (snapshot) => {
      const copy = await forking;
      if (!copy || !isHeld) return abort();
      const held: HeldVm = { id, dir, vm: copy, memory: image, imageOf, disk, group: undefined };
      await zygotes.adopt(snapshot, held, bytes);
    },
    abort,
  };
}
