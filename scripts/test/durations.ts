// Durations of the jobs in the last run, so that the longest start first. Stored outside the repository, so that a
// fresh clone on the same machine has them too.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

import type { Job } from "./job.ts";

export type Durations = Record<string, number>;

/** Cache for later runs; can be deleted */
export const CACHE = join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "forkd");
const FILE = join(CACHE, "test-durations.json");

export async function readDurations(file = FILE): Promise<Durations> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as Durations;
  } catch (error) {
    // A killed run may leave an incomplete file; then the order is a guess.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw error;
  }
}

export async function writeDurations(durations: Durations, file = FILE): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${JSON.stringify(durations, null, 1)}\n`);
}

/** Longest first. Unmeasured jobs come before all others, heaviest first */
export function longestFirst(jobs: readonly Job[], durations: Durations): Job[] {
  const known = (job: Job): number => durations[job.name] ?? Infinity;
  return jobs.toSorted((a, b) => (known(a) === known(b) ? b.weight - a.weight : known(b) - known(a)));
}
