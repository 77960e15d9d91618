// A question that wants yes or no.

import { createInterface } from "node:readline/promises";
import { usageError } from "./errors.ts";

/** Only on a terminal: elsewhere nobody would answer */
export async function ask(question: string, opts: { signal: AbortSignal }): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) throw usageError("There is nobody to ask: confirm with --yes.");
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await lines.question(`${question} [y/N] `, opts)).trim());
  } finally {
    lines.close();
  }
}
