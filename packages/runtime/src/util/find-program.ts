// Finds programs in PATH, as a shell does.

import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";

/** The path itself when it can be executed */
export async function executable(path: string): Promise<string | null> {
  const isThere = await access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
  return isThere ? path : null;
}

/** PATH, and the folders of file-system tools, which are not in the PATH of an ordinary user */
export function searchPath(): string {
  return [process.env["PATH"] ?? "", "/usr/sbin", "/sbin"].join(delimiter);
}

/** The first executable of that name */
export async function findProgram(name: string): Promise<string | null> {
  for (const dir of searchPath().split(delimiter)) {
    const found = dir ? await executable(join(dir, name)) : null;
    if (found) return found;
  }
  return null;
}
