// How the memory of a branch's source is taken: its pages are copied while it runs and again, where they changed, while it is
// stopped.

import { STEP_WITHIN_MS, step } from "./branch-step.ts";
import type { CaptureSpec, Warden } from "../warden/warden.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { Sandbox } from "./sandbox.ts";

/** What is captured: all but the process that is read. `isSameAs`: id of the snapshot whose memory `below` and `earlier` are */
export type Memory = Omit<CaptureSpec, "pid"> & { isSameAs: string };

export type Method = {
  /** pages that take() may have to handle */
  readonly pages: number;
  /** Call while the source is stopped: freezes its disk and takes its memory and device state. Returns the pages copied again */
  take(limitMs?: number): Promise<number>;
  /** Call when the source runs again: writes device state and delta */
  save(deviceState: string): Promise<{ bytes: number; pages: number }>;
  /** The snapshot is complete. Never throws */
  complete(snapshot: Snapshot): Promise<void>;
  /** Removes what was made. Never throws */
  abort(): Promise<void>;
};

/** Copies pages of the source's own process */
export async function byCopy(warden: Warden, { vm, disk }: Sandbox, memory: Memory): Promise<Method> {
  const begun = await warden.captureBegin({ pid: vm.pid, ...memory });
  return {
    pages: begun.pages,
    take: async (limitMs = STEP_WITHIN_MS) => {
      const freeze = disk?.freeze(vm.disk) ?? Promise.resolve();
      const saves = [step("disk", freeze, limitMs), step("device state", vm.saveDeviceState(), limitMs)];
      const [finished] = await Promise.all([step("memory", begun.finish(), limitMs), ...saves]);
      return finished.recopied;
    },
    save: async (deviceState) => {
      await vm.takeDeviceState(deviceState);
      return begun.commit();
    },
    complete: async () => undefined,
    abort: async () => begun.abort(),
  };
}
