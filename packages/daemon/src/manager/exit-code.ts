// How a program ended, as one number.

import { constants } from "node:os";

const TIMED_OUT = 124;
const SIGNALLED = 128;

export function exitCodeOf({ code, signal, timedOut }: { code: number | null; signal: string | null; timedOut: boolean }): number {
  if (timedOut) return TIMED_OUT;
  if (code !== null) return code;
  return SIGNALLED + (constants.signals[signal as NodeJS.Signals] ?? 0);
}
