// Finds programs the way a shell would.

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

/** The first executable of that name in PATH */
export async function findProgram(name: string): Promise<string | null> {
  for (const dir of (process.env["PATH"] ?? "").split(delimiter)) {
    const found = dir ? await executable(join(dir, name)) : null;
    if (found) return found;
  }
  return null;
}
