// The one validator for every name that becomes part of a path.

import { ForkdError } from "../errors.ts";

export const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;

/** Returns the name, or throws BAD_NAME: images, tags, sandbox ids and everything else that becomes a file name */
export function checkName(kind: string, name: string): string {
  if (!NAME.test(name) || name.endsWith(".tmp")) {
    throw new ForkdError("BAD_NAME", `${kind} ${JSON.stringify(name.slice(0, 80))} is not a valid name.`);
  }
  return name;
}
