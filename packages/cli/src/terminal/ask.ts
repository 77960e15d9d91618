// A yes-or-no question.

import { createInterface } from "node:readline/promises";
import { usageError } from "../errors.ts";

/** Only on a terminal: without one there is no user to answer */
export async function ask(question: string, opts: { signal: AbortSignal }): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) throw usageError("There is no terminal to ask at: confirm with --yes.");
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await lines.question(`${question} [y/N] `, opts)).trim());
  } finally {
    lines.close();
  }
}
