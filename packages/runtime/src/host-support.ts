// Support for VMs on this host: engine, guest kernel, accelerator, and confinement of VMMs.

import { ForkdError } from "./errors.ts";
import type { Home } from "./home.ts";
import { acceleratorFrom, type AcceleratorPolicy, type IsolationPolicy } from "./host/accelerators.ts";
import type { ConfinementPolicy } from "./host/confined.ts";
import { installation } from "./host/installation.ts";
import { ensureGuestKernel, type GuestKernel } from "./guest-kernel/guest-kernel.ts";
import type { Progress } from "./util/progress.ts";
import type { AcceleratorChoice, ConfinementState, InstalledEngine, Isolation } from "./vmm/driver.ts";
import { ENGINE } from "./vmm/engine.ts";
import { probeConfinement } from "./probe/confinement.ts";
import { askedAccelerator, probeAccelerator } from "./probe/accelerator.ts";

export type HostSupport = {
  engine: InstalledEngine;
  guestKernel: GuestKernel;
  accelerator: AcceleratorChoice;
  confinement: ConfinementState;
  /**
   * Throws CONFINEMENT_UNAVAILABLE if confinement is required and not available. Throws ISOLATION_UNAVAILABLE for an
   * emulated guest if KVM is required, or if KVM works and the request did not allow emulation
   */
  checkStart: (isolation: Isolation, asked?: IsolationPolicy) => void;
};

export type HostSupportOptions = {
  guestKernel?: string | undefined;
  accelerator?: AcceleratorPolicy | undefined;
  confinement?: ConfinementPolicy | undefined;
  isolation?: IsolationPolicy | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export async function detectHost(home: Home, opts: HostSupportOptions): Promise<HostSupport> {
  const { signal, progress } = opts;
  const engine = await ENGINE.find(signal);
  const { agent, kernelsDir, warden } = installation;
  const file = opts.guestKernel ?? (process.env["FORKD_GUEST_KERNEL"] || undefined);
  const guestKernel = await ensureGuestKernel(home, { file, agent, kernelsDir, progress, signal });
  const confinement = await probeConfinement(home, { engine, warden, signal });
  const isRefused = opts.confinement === "required" && confinement.kind === "none";
  const asked = opts.accelerator ?? acceleratorFrom(process.env);
  const accelerator: AcceleratorChoice =
    asked !== "auto"
      ? await askedAccelerator(asked)
      : isRefused
        ? // the KVM probe would start an unconfined VMM
          { accelerator: "tcg", reason: "not probed: VMMs must be confined and cannot be" }
        : await probeAccelerator(home, { engine, guestKernel, warden, confinement, signal });
  const checkStart = (isolation: Isolation, asked?: IsolationPolicy): void => {
    if (isRefused)
      throw new ForkdError(
        "CONFINEMENT_UNAVAILABLE",
        `Cannot start a VM: it must be confined, and this host does not allow it: ${confinement.reason}`,
      );
    checkIsolation(opts.isolation === "kvm" ? "kvm" : (asked ?? opts.isolation), isolation, accelerator);
  };
  return { engine, guestKernel, accelerator, confinement, checkStart };
}

/** Throws ISOLATION_UNAVAILABLE */
export function checkIsolation(asked: IsolationPolicy | undefined, isolation: Isolation, host: AcceleratorChoice): void {
  const policy = asked ?? "auto";
  if (policy === "any" || isolation === "kvm") return;
  if (host.accelerator === "kvm")
    throw new ForkdError(
      "ISOLATION_UNAVAILABLE",
      `Cannot start a VM: its snapshot was made without KVM, so it would be emulated, which isolation = ${policy} forbids on this host.`,
      {
        hint:
          policy === "auto"
            ? "Make the snapshot again on this host. `isolation=any` allows it for this fork, and the setting of that name for all; it is not a security boundary."
            : "Make the snapshot again on this host.",
      },
    );
  if (policy === "kvm")
    throw new ForkdError(
      "ISOLATION_UNAVAILABLE",
      `Cannot start a VM: isolation = kvm demands KVM, which is not used on this host: ${host.reason}.`,
      host.advice === undefined ? {} : { hint: host.advice },
    );
}
