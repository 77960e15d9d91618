// This installation: its version, and the program that starts it.

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import manifest from "../package.json" with { type: "json" };

export const VERSION: string = manifest.version;

/** In a checkout, the script that finds its own Node; elsewhere the file that npm links */
export function forkdProgram(): string {
  const wrapper = resolve(import.meta.dirname, "..", "..", "..", "forkd");
  return existsSync(wrapper) ? wrapper : resolve(import.meta.dirname, "..", "bin", "forkd.mjs");
}
