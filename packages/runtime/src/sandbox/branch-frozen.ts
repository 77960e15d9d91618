// A branch with KVM by a frozen copy: a process that has the guest's memory of the pause, and nothing else. The source runs
// on as soon as it exists, and its pages are stored from there.

import type { Warden } from "../warden/warden.ts";
import type { Engine, FrozenCopy } from "../vmm/driver.ts";
import { ForkFailed, mayCopy, type CopyOptions } from "./branch-fork.ts";
import type { Memory, Method } from "./branch-method.ts";
import { PREPARED_WITHIN_MS, STEP_WITHIN_MS, step } from "./branch-step.ts";
import type { Sandbox } from "./sandbox.ts";

const PAGE = 4096;

type FreezingEngine = Pick<Engine, "freezeObstacle" | "prepareFreeze" | "freeze">;

/** Whether a frozen copy can be tried. Only VMs with KVM are started for that: others can be forked */
export function canFreeze({ freezeObstacle }: FreezingEngine, source: Sandbox, opts: CopyOptions): boolean {
  return freezeObstacle === null && source.vm.isFreezable && mayCopy(source, opts);
}

/** Throws ForkFailed if the source cannot be copied, or the copy not be stored; the source is unchanged */
export async function byFrozenCopy(engine: FreezingEngine, warden: Warden, { vm, disk }: Sandbox, memory: Memory): Promise<Method> {
  let freezing: Promise<FrozenCopy> | undefined;
  const end = async (): Promise<void> => {
    const copy = await freezing?.catch(() => undefined); // take() has thrown it
    freezing = undefined;
    await copy?.end();
  };
  const ram = { path: memory.ramPath, bytes: memory.ramBytes };
  await orForkFailed(async () => step("frozen copy", engine.prepareFreeze(vm, ram), PREPARED_WITHIN_MS));
  return {
    pages: memory.ramBytes / PAGE,
    take: async (limitMs = STEP_WITHIN_MS) => {
      const freeze = disk?.freeze(vm.disk) ?? Promise.resolve();
      await Promise.all([step("disk", freeze, limitMs), step("device state", vm.saveDeviceState(), limitMs)]);
      // last: the memory of a guest whose devices are saved does not change any more
      freezing = engine.freeze(vm);
      await orForkFailed(async () => freezing && step("frozen copy", freezing, limitMs));
      return 0;
    },
    save: async (deviceState) => {
      await vm.takeDeviceState(deviceState);
      try {
        return await orForkFailed(async () => {
          const copy = await freezing;
          if (!copy) throw new Error("There is no copy of the source.");
          return warden.capture({ pid: copy.pid, ...memory });
        });
      } finally {
        // at once: the host holds each page twice that the source has changed since
        await end();
      }
    },
    complete: async () => undefined,
    abort: end,
  };
}

async function orForkFailed<V>(work: () => Promise<V>): Promise<V> {
  try {
    return await work();
  } catch (error) {
    throw new ForkFailed(error);
  }
}
