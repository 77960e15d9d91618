// Files with secrets: only their owner may read them.

import { open } from "node:fs/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";

const MAX_FILE_BYTES = 4096;

/** @param setting name of the setting that has the path */
export async function readSecretFile(path: string, setting: string): Promise<string> {
  try {
    await using file = await open(path, "r");
    const { mode, size } = await file.stat();
    if ((mode & 0o077) !== 0)
      throw new ForkdError("BAD_CONFIG", `Cannot use ${setting} ${path}: others can read it (mode ${(mode & 0o777).toString(8)}).`, {
        hint: `Run 'chmod 600 ${path}'.`,
      });
    if (size > MAX_FILE_BYTES)
      throw new ForkdError("BAD_CONFIG", `Cannot use ${setting} ${path}: it is larger than ${MAX_FILE_BYTES} bytes.`);
    return await file.readFile("utf8");
  } catch (error) {
    if (error instanceof ForkdError) throw error;
    throw new ForkdError("BAD_CONFIG", `Cannot read ${setting} ${path}: ${messageOf(error)}.`, { cause: error });
  }
}
