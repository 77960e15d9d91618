// Places in a sandbox as verbs about its files take them.

import { parsePlace } from "./copy.ts";
import { usageError } from "./errors.ts";

import type { GuestPlace } from "./copy.ts";

/** ID:/path, and nothing else */
export function guestPlace(text: string): GuestPlace {
  const { sandbox, path } = parsePlace(text);
  if (sandbox === undefined) throw usageError(`'${text}' is no place in a sandbox: give ID:/path.`);
  return { sandbox, path };
}

/** A second path of the same sandbox: /path, or ID:/path once more */
export function pathInSame(text: string, place: GuestPlace): string {
  const { sandbox, path } = parsePlace(text);
  if (sandbox !== undefined && sandbox !== place.sandbox) throw usageError("Both paths must be in the same sandbox.");
  if (!path.startsWith("/")) throw usageError(`'${text}' must be absolute, as /path or ${place.sandbox}:/path.`);
  return path;
}
