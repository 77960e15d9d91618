// The guest kernel's command line on QEMU's machine.

import { PLATFORM, type Platform } from "../../host/platform.ts";

/**
 * Periodic work of an idle kernel: twice a second the search for memory to compact in advance, once a second the totals of
 * memory statistics. Each wakes the VMM three times, so that 1,000 idle sandboxes kept a core busy.
 */
const IDLE = ["sysctl.vm.compaction_proactiveness=0", "sysctl.vm.stat_interval=60"];

/**
 * Command line of a guest. Under TCG every part of the guest kernel costs time after each fork. Speculation mitigations
 * have no effect on an emulated CPU; pressure statistics, and security modules without a policy, are unused. Without
 * address randomisation a program starts five times as fast, because its code is not translated again. Clock options
 * depend on the processor. See IDLE for the others.
 */
export function guestCommandLine(accelerator: "kvm" | "tcg", { kernel }: Platform = PLATFORM): string {
  const common = [`console=${kernel.console}`, "quiet", "loglevel=4", "panic=-1", "nowatchdog", "audit=0", ...IDLE, ...kernel.common];
  const translated = ["mitigations=off", "psi=0", "norandmaps", "lsm="];
  return [...common, ...kernel[accelerator], ...(accelerator === "tcg" ? translated : [])].join(" ");
}

/** Command line of a trial guest: not quiet, because the console is the only diagnosis if it hangs */
export function trialCommandLine({ kernel }: Platform = PLATFORM): string {
  return [kernel.early, `console=${kernel.console}`, "panic=-1", ...kernel.common].join(" ");
}
