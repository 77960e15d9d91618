// forkd doctor: gathers the host's facts, the probe of the accelerator included, and reports on them.

import { access } from "node:fs/promises";
import { join } from "node:path";
import { prepareHome } from "../home.ts";
import { ensureGuestKernel } from "../image/guest-kernel.ts";
import { findQemu } from "../vmm/qemu/binary.ts";
import { probeConfinement } from "../vmm/qemu/confinement-probe.ts";
import { probeAccelerator } from "../vmm/qemu/probe.ts";
import { gatherHostFacts } from "./host-facts.ts";
import { installation } from "./installation.ts";
import { reportOf } from "./report.ts";

import type { Home } from "../home.ts";
import type { GuestKernel } from "../image/guest-kernel.ts";
import type { Progress } from "../util/progress.ts";
import type { DoctorReport } from "./report.ts";

export async function runDoctor(home: Home, opts: { signal?: AbortSignal; progress?: Progress } = {}): Promise<DoctorReport> {
  opts.progress?.({ step: "Checking this host" });
  const { warden } = installation;
  const guestKernel = await findGuestKernel(home, opts.signal);
  const facts = await gatherHostFacts(
    home,
    {
      installation,
      guestKernel,
      confine: async () => {
        opts.progress?.({ step: "Starting a VMM to see whether it can be confined" });
        await prepareHome(home);
        return probeConfinement(home, { qemu: await findQemu(opts.signal), warden, signal: opts.signal });
      },
      probe: async (kernel, confinement) => {
        opts.progress?.({ step: "Booting a tiny guest to see whether KVM works" });
        const qemu = await findQemu(opts.signal);
        return probeAccelerator(home, { qemu, guestKernel: kernel, warden, confinement, signal: opts.signal });
      },
    },
    opts.signal,
  );
  return reportOf(facts);
}

/** What make setup left behind. Looks, and never downloads. */
async function findGuestKernel(home: Home, signal: AbortSignal | undefined): Promise<GuestKernel | null> {
  const file = process.env["FORKD_GUEST_KERNEL"] || undefined;
  const needed = [installation.agent, file ?? join(home.guestKernels, "current")];
  const present = await Promise.all(
    needed.map((path) =>
      access(path).then(
        () => true,
        () => false,
      ),
    ),
  );
  if (present.includes(false)) return null;
  return ensureGuestKernel(home, { ...installation, file, signal });
}
