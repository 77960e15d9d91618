// The guest kernel's command line on QEMU's machine.

import { PLATFORM, type Platform } from "../../host/platform.ts";

/**
 * Periodic work of an idle kernel: twice a second the search for memory to compact in advance, once a second the totals of
 * memory statistics. Each wakes the VMM three times, so that 1,000 idle sandboxes kept a core busy.
 */
const IDLE = ["sysctl.vm.compaction_proactiveness=0", "sysctl.vm.stat_interval=60"];

/**
 * Work of a boot that an emulated guest has no use for; together a third of the boot. The self-tests of the kernel's ciphers,
 * and of a random generator that only some of them use; the certificates for module signatures, which the initramfs's
 * modules do not have; names for trace events; and the removal of lock prefixes, which cost nothing under TCG.
 */
const NOT_AT_BOOT = [
  "cryptomgr.notests=1",
  "initcall_blacklist=jent_mod_init,load_system_certificate_list,trace_eval_init",
  "noreplace-smp",
];

/**
 * Command line of a guest. Under TCG every part of the guest kernel costs time after each fork. Speculation mitigations
 * have no effect on an emulated CPU; pressure statistics, and security modules without a policy, are unused. Without
 * address randomisation a program starts five times as fast, because its code is not translated again. Clock options
 * depend on the processor. See IDLE and NOT_AT_BOOT for the others.
 */
export function guestCommandLine(accelerator: "kvm" | "tcg", { kernel }: Platform = PLATFORM): string {
  const common = [`console=${kernel.console}`, "quiet", "loglevel=4", "panic=-1", "nowatchdog", "audit=0", ...IDLE, ...kernel.common];
  const translated = ["mitigations=off", "psi=0", "norandmaps", "lsm=", ...NOT_AT_BOOT];
  return [...common, ...kernel[accelerator], ...(accelerator === "tcg" ? translated : [])].join(" ");
}

/** Command line of a trial guest: not quiet, because the console is the only diagnosis if it hangs */
export function trialCommandLine({ kernel }: Platform = PLATFORM): string {
  return [kernel.early, `console=${kernel.console}`, "panic=-1", ...kernel.common].join(" ");
}
