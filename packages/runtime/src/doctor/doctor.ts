// forkd doctor: collects the facts of the host, including the accelerator probe, and reports on them.

import { access } from "node:fs/promises";
import { join } from "node:path";
import { prepareHome } from "../home.ts";
import { ensureGuestKernel } from "../guest-kernel/guest-kernel.ts";
import { ENGINE } from "../vmm/engine.ts";
import { probeConfinement } from "../probe/confinement.ts";
import { askedAccelerator, probeAccelerator } from "../probe/accelerator.ts";
import { gatherHostFacts } from "./host-facts.ts";
import { installation } from "../host/installation.ts";
import { reportOf } from "./report.ts";

import type { Home } from "../home.ts";
import type { GuestKernel } from "../guest-kernel/guest-kernel.ts";
import type { Progress } from "../util/progress.ts";
import type { AcceleratorPolicy, IsolationPolicy } from "../host/accelerators.ts";
import type { DoctorReport } from "./report.ts";

export type DoctorOptions = {
  /** the setting */
  accelerator?: AcceleratorPolicy | undefined;
  /** the setting */
  isolation?: IsolationPolicy | undefined;
  signal?: AbortSignal;
  progress?: Progress;
};

export async function runDoctor(home: Home, opts: DoctorOptions = {}): Promise<DoctorReport> {
  opts.progress?.({ step: "Checking this host" });
  const { warden } = installation;
  const guestKernel = await findGuestKernel(home, opts.signal);
  const facts = await gatherHostFacts(
    home,
    {
      engine: await ENGINE.look(opts.signal),
      installation,
      guestKernel,
      isolationPolicy: opts.isolation ?? "auto",
      confine: async () => {
        opts.progress?.({ step: "Starting a VMM to see whether it can be confined" });
        await prepareHome(home);
        return probeConfinement(home, { engine: await ENGINE.find(opts.signal), warden, signal: opts.signal });
      },
      probe: async (kernel, confinement) => {
        const { accelerator = "auto" } = opts;
        if (accelerator !== "auto") return askedAccelerator(accelerator);
        opts.progress?.({ step: "Booting, forking and branching a tiny guest to see whether KVM works" });
        const engine = await ENGINE.find(opts.signal);
        return probeAccelerator(home, { engine, guestKernel: kernel, warden, confinement, fresh: true, signal: opts.signal });
      },
    },
    opts.signal,
  );
  return reportOf(facts);
}

/** The results of make setup. Read-only: it never downloads. */
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
