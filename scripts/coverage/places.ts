// Folders of a coverage run.

import { join } from "node:path";

export const ROOT = join(import.meta.dirname, "..", "..");
const DIR = join(ROOT, "dist", "coverage");
/** instrumented binaries */
export const BIN = join(DIR, "bin");
/** counters of single processes; users that tests add write here too */
export const RAW = join(DIR, "raw");
export const TARGET = join(DIR, "target");
/** complete list of untested code */
export const UNTESTED = join(DIR, "untested.txt");
