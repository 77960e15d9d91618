// Paths in a sandbox, in the form of the verbs about files.

import { parsePlace, relativePlace } from "./stream.ts";
import { usageError } from "../errors.ts";

import type { GuestPlace } from "./stream.ts";

/** Only ID:/path */
export function guestPlace(text: string): GuestPlace {
  const { sandbox, path } = parsePlace(text);
  if (sandbox === undefined) throw usageError(relativePlace(text) ?? `'${text}' is not a path in a sandbox: give ID:/path.`);
  return { sandbox, path };
}

/** A second path of the same sandbox: /path, or ID:/path */
export function pathInSame(text: string, place: GuestPlace): string {
  const { sandbox, path } = parsePlace(text);
  if (sandbox !== undefined && sandbox !== place.sandbox) throw usageError("Both paths must be in the same sandbox.");
  if (!path.startsWith("/")) throw usageError(`'${text}' must be absolute, as /path or ${place.sandbox}:/path.`);
  return path;
}
