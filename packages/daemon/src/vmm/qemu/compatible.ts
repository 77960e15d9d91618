// Whether a snapshot can be forked with this QEMU on this host.

import { ForkdError } from "../../errors.ts";
import type { MachineShape } from "../driver.ts";
import { compareVersions } from "./version.ts";

/** Throws SNAPSHOT_INCOMPATIBLE with the reason */
export function checkCompatible(tag: string, shape: MachineShape, host: { qemuVersion: string; accelerator: "kvm" | "tcg" }): void {
  const refuse = (why: string, hint: string): never => {
    throw new ForkdError("SNAPSHOT_INCOMPATIBLE", `Cannot fork snapshot ${tag} here: ${why}.`, { hint });
  };
  if (shape.accelerator === "kvm" && host.accelerator !== "kvm") {
    refuse(
      "it was made with KVM, which does not work on this host",
      "Make the snapshot again here, or run it where 'forkd doctor' reports KVM.",
    );
  }
  if (compareVersions(host.qemuVersion, shape.engineVersion) < 0) {
    refuse(
      `it was made with QEMU ${shape.engineVersion} and this is the older ${host.qemuVersion}`,
      "Install a newer QEMU, or make the snapshot again here.",
    );
  }
}
