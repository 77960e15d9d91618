// What callers can choose about packs.

import type { CallOptions, OnceOptions, ProgressOptions } from "./options.ts";

type PackFields = {
  /** Of zstd, 1 (fast) to 19 (small). @default 3 */
  level?: number | undefined;
  /** Name of one of the daemon's own keys */
  sign?: string | undefined;
  /** Tags or ids of snapshots that the receiver has: their data is left out */
  without?: readonly string[] | undefined;
};

export type ReadPackOptions = CallOptions & PackFields;

export type PreparePackOptions = ProgressOptions & PackFields;

export type UnpackOptions = CallOptions & {
  /** Without it, the name in the pack */
  tag?: string | undefined;
  /** Takes the tag away from the snapshot that has it */
  force?: boolean | undefined;
};

export type CreateKeyOptions = OnceOptions & {
  /** Somebody's public key, which is known from then on; without it, a key of the daemon's own is made */
  publicKey?: string | undefined;
};
