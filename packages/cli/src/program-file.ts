// The program that a user calls as forkd: what other programs are told to start.

import { existsSync } from "node:fs";
import { resolve } from "node:path";

/** Beside the packages, where it finds its own Node; elsewhere what npm made */
const WRAPPER = resolve(import.meta.dirname, "..", "..", "..", "forkd");

export const FORKD_PROGRAM: string = existsSync(WRAPPER) ? WRAPPER : resolve(import.meta.dirname, "..", "bin", "forkd.mjs");
