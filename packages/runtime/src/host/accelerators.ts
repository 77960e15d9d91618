// Settings that choose between KVM and emulation.

import { ForkdError } from "../errors.ts";

/** auto: KVM where a trial shows that it works, else the engine's emulation */
export const ACCELERATORS = ["auto", "kvm", "tcg"] as const;

export type AcceleratorPolicy = (typeof ACCELERATORS)[number];

/** auto: emulated only where KVM is not used; kvm: never emulated; any: emulation also of snapshots made without KVM */
export const ISOLATIONS = ["auto", "kvm", "any"] as const;

export type IsolationPolicy = (typeof ISOLATIONS)[number];

/** FORKD_ACCELERATOR, for programs that run VMs without a daemon and its settings */
export function acceleratorFrom(env: NodeJS.ProcessEnv): AcceleratorPolicy {
  const word = env["FORKD_ACCELERATOR"] || "auto";
  const known = ACCELERATORS.find((one) => one === word);
  if (known === undefined)
    throw new ForkdError(
      "BAD_CONFIG",
      `Cannot use FORKD_ACCELERATOR = ${JSON.stringify(word)}: it must be one of ${ACCELERATORS.join(", ")}.`,
    );
  return known;
}
