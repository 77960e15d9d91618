// What VMs run with on this host: QEMU, a guest kernel, an accelerator, and whether VMMs are confined.

import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { installation } from "../host/installation.ts";
import { ensureGuestKernel, type GuestKernel } from "../image/guest-kernel.ts";
import type { Progress } from "../util/progress.ts";
import type { ConfinementState } from "../vmm/driver.ts";
import { findQemu, type QemuBinary } from "../vmm/qemu/binary.ts";
import { probeConfinement } from "../vmm/qemu/confinement-probe.ts";
import { probeAccelerator, type AcceleratorChoice } from "../vmm/qemu/probe.ts";

export type ConfinementPolicy = "required" | "preferred";

export type Ground = {
  qemu: QemuBinary;
  guestKernel: GuestKernel;
  accelerator: AcceleratorChoice;
  confinement: ConfinementState;
  /** throws CONFINEMENT_UNAVAILABLE where VMMs must be confined and cannot be */
  checkConfinement: () => void;
};

export type GroundOptions = {
  guestKernel?: string | undefined;
  accelerator?: "kvm" | "tcg" | undefined;
  confinement?: ConfinementPolicy | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export async function findGround(home: Home, opts: GroundOptions): Promise<Ground> {
  const { signal, progress } = opts;
  const qemu = await findQemu();
  const { agent, kernelsDir, warden } = installation;
  const file = opts.guestKernel ?? (process.env["FORKD_GUEST_KERNEL"] || undefined);
  const guestKernel = await ensureGuestKernel(home, { file, agent, kernelsDir, progress, signal });
  const confinement = await probeConfinement(home, { qemu, warden, signal });
  const isRefused = opts.confinement === "required" && confinement.kind === "none";
  const checkConfinement = (): void => {
    if (isRefused)
      throw new ForkdError(
        "CONFINEMENT_UNAVAILABLE",
        `Cannot start a VM: it must be confined, and this host does not let it: ${confinement.reason}`,
      );
  };
  const accelerator: AcceleratorChoice = opts.accelerator
    ? { accelerator: opts.accelerator, reason: "asked for" }
    : isRefused
      ? // to try KVM means to start a VMM
        { accelerator: "tcg", reason: "not probed: VMMs must be confined and cannot be" }
      : await probeAccelerator(home, { qemu, guestKernel, warden, confinement, signal });
  return { qemu, guestKernel, accelerator, confinement, checkConfinement };
}
