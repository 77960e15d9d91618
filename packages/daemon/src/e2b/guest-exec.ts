// Short programs whose output tells something about a guest.

import type { Caller } from "../manager/caller.ts";
import type { E2bServices } from "./work.ts";

const TIMEOUT_SECS = 30;
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024;

/** What it printed; null: it failed */
export async function outputOf(args: string[], at: { id: string; services: E2bServices; caller: Caller }): Promise<string | null> {
  const request = { args, timeout_secs: TIMEOUT_SECS, encoding: "utf8", max_output_bytes: MAX_OUTPUT_BYTES } as const;
  const { stdout, exit_code: code } = await at.services.manager.inside.exec(at.id, request, at.caller);
  return code === 0 ? stdout : null;
}
