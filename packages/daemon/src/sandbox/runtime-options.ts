// What is asked of a runtime.

import type { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import type { HostLimits } from "../host/control-groups.ts";
import type { NetworkOptions } from "../net/network.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { Share } from "../share/server.ts";
import type { Progress } from "../util/progress.ts";
import type { WarmUp } from "./boot.ts";
import type { Continued } from "./fork.ts";
import type { ConfinementPolicy } from "./ground.ts";
import type { Sandbox } from "./sandbox.ts";

export type RuntimeOptions = {
  home?: Home;
  /** how many children start at the same time */
  parallelism?: number | undefined;
  /** a guest kernel of the user's own */
  guestKernel?: string | undefined;
  /** asks for one accelerator instead of the best that works */
  accelerator?: "kvm" | "tcg" | undefined;
  /** how names are looked up, and who hears of connections */
  network?: NetworkOptions | undefined;
  /** "preferred" (the default): where the host does not let VMMs be confined, they run without; "required": they do not run */
  confinement?: ConfinementPolicy | undefined;
  onWarning?: (message: string) => void;
  /** "own": VMs end with this process. "durable": they outlive it and are adopted; one such runtime at a time, the caller sees to it */
  life?: "own" | "durable";
  /** hears of every sandbox that is gone, for whatever reason */
  onGone?: ((sandbox: Sandbox) => void) | undefined;
  /** hears that the parent of all VMs died, and they with it */
  onLost?: ((why: string) => void) | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export type CreateSnapshotOptions = {
  tag: string;
  /** of the new snapshot */
  id?: string | undefined;
  /** name or id of a stored image */
  image: string;
  memoryMiB?: number | undefined;
  vcpus?: number | undefined;
  /** room for what the guest writes, on the host's disk; without it that is in the guest's memory */
  diskMiB?: number | undefined;
  warmUp?: WarmUp | undefined;
  env?: Record<string, string> | undefined;
  /** during the warm-up, and for its forks unless they are made with something else; none without it */
  network?: NetworkPolicy | undefined;
  progress?: Progress | undefined;
  signal?: AbortSignal | undefined;
};

export type ForkOptions = {
  n?: number;
  /** one failed child fails all */
  allOrNothing?: boolean;
  env?: Record<string, string> | undefined;
  /** without it, what the snapshot says */
  network?: NetworkPolicy | undefined;
  /** folders of the host that the children see, read-only */
  shares?: readonly Share[] | undefined;
  limits?: HostLimits | undefined;
  /** of a single child: which sandbox it goes on as */
  as?: Continued | undefined;
  signal?: AbortSignal | undefined;
};

/** One child: the sandbox, or why there is none */
export type ForkOutcome = { sandbox: Sandbox; error?: undefined } | { sandbox?: undefined; error: ForkdError };
