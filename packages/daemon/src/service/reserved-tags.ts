// Default tags of E2B's clients. Only admins may set them, because all sandboxes of these clients are made from them.

import { ForkdError } from "@forkd/runtime/errors";
import type { Caller } from "./caller.ts";

export const RESERVED_TAGS = ["base", "code-interpreter-v1"] as const;

export type ReservedTag = (typeof RESERVED_TAGS)[number];

export function isReservedTag(tag: string): tag is ReservedTag {
  return RESERVED_TAGS.some((reserved) => reserved === tag);
}

/** Throws FORBIDDEN */
export function refuseReserved(tag: string | undefined, caller: Pick<Caller, "isAdmin">): void {
  if (caller.isAdmin || tag === undefined || !isReservedTag(tag)) return;
  throw new ForkdError("FORBIDDEN", `Cannot name a snapshot ${tag}: it is the template that E2B's clients use when they name none.`, {
    hint: "Take another name, or a token of scope admin.",
  });
}
