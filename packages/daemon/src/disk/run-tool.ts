// Programs of the host that write disks.

import { ForkdError } from "../errors.ts";
import { run } from "../host/run.ts";
import { searchPath } from "../util/find-program.ts";

/** Runs one to its end; throws NO_SPACE where that is what it says */
export async function runDiskTool(argv: readonly string[], signal?: AbortSignal): Promise<void> {
  try {
    await run(argv, { signal, env: { ...process.env, PATH: searchPath(), LC_ALL: "C" } });
  } catch (error) {
    throw diskFailure(error);
  }
}

/** What it failed for, as far as we know it */
export function diskFailure(error: unknown): unknown {
  const isFull = error instanceof ForkdError && /No space left on device|Disk quota exceeded/.test(error.message);
  return isFull ? new ForkdError("NO_SPACE", "Cannot write a disk layer: the host's disk is full.", { cause: error }) : error;
}
