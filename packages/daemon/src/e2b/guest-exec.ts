// Short programs in a guest, run for their output.

import type { Caller } from "../service/caller.ts";
import type { E2bServices } from "./work.ts";

const TIMEOUT_SECS = 30;
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024;

/** Standard output; null: the program failed */
export async function outputOf(args: string[], at: { id: string; services: E2bServices; caller: Caller }): Promise<string | null> {
  const request = { args, timeout_secs: TIMEOUT_SECS, encoding: "utf8", max_output_bytes: MAX_OUTPUT_BYTES } as const;
  const { stdout, exit_code: code } = await at.services.manager.execution.exec(at.id, request, at.caller);
  return code === 0 ? stdout : null;
}
