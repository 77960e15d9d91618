// Names of signals by number.

import { constants } from "node:os";

const NAMES = new Map<number, string>(Object.entries(constants.signals).map(([name, number]) => [number, name]));

export function signalName(number: number): string {
  return NAMES.get(number) ?? `SIG${number}`;
}
