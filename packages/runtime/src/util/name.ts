// The one validator for every name that becomes part of a path.

import { ForkdError } from "../errors.ts";

export const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;

/** A name, or two with a slash between them: that of an owner, and that of its thing */
export const QUALIFIED_NAME = /^(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;
/** Stands for the slash in file names; no name contains it */
const SLASH_IN_FILES = "@";

/** Returns the name, or throws BAD_NAME: images, tags, sandbox ids and everything else that becomes a file name */
export function checkName(kind: string, name: string): string {
  if (!NAME.test(name) || name.endsWith(".tmp")) {
    throw new ForkdError("BAD_NAME", `${kind} ${JSON.stringify(name.slice(0, 80))} is not a valid name.`);
  }
  return name;
}

/** The same for OWNER/NAME; `fileOf` makes it a file name */
export function checkQualifiedName(kind: string, name: string): string {
  if (!QUALIFIED_NAME.test(name) || name.endsWith(".tmp")) {
    throw new ForkdError("BAD_NAME", `${kind} ${JSON.stringify(name.slice(0, 160))} is not a valid name.`);
  }
  return name;
}

/** The file of a checked name, and back */
export function fileOf(name: string): string {
  return name.replace("/", SLASH_IN_FILES);
}

export function nameOf(file: string): string {
  return file.replace(SLASH_IN_FILES, "/");
}
