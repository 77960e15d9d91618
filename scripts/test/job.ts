// Jobs of a test run: test files, and commands that are one job each.

import { glob, readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";

export const ROOT = resolve(import.meta.dirname, "..", "..");

/** In the order of the summary */
export const SUITES = ["check", "rust", "python", "unit", "e2e", "recipes", "cluster"] as const;
export type Suite = (typeof SUITES)[number];

export type Job = {
  /** path of a test file relative to the repository root, or the name of a command */
  name: string;
  suite: Suite;
  /** reason why no other job may run at the same time */
  alone: string | null;
  /** reason why it runs beside all other shared jobs, with the lowest priority */
  background: string | null;
  /** reason why it builds its own images, which stay in the machine's store */
  images: string | null;
  /** for a job that is not a test file */
  command?: string[];
  /** estimate of the duration until one is measured */
  weight: number;
};

const FILES: Partial<Record<Suite, string[]>> = {
  unit: ["packages/*/test/**/*.test.ts", "examples/model/test/*.test.ts", "scripts/**/*.test.ts"],
  e2e: ["tests/e2e/*.test.ts"],
  recipes: ["tests/recipes/*.test.ts"],
  cluster: ["tests/cluster/*.test.ts"],
};
/** `// Runs alone: it measures time.` */
const ALONE = /^\/\/ Runs alone: (.+)$/m;
/** `// Runs in the background: it only needs CPU time.` */
const BACKGROUND = /^\/\/ Runs in the background: (.+)$/m;
/** `// Builds images: it tests the builds of recipes.` */
const IMAGES = /^\/\/ Builds images: (.+)$/m;
/** `// Runs in make test-all only: it repeats what … tests.` */
const LONG = /^\/\/ Runs in make test-all only: (.+)$/m;
/** Duration of a test file with real VMs, relative to one of the same size without */
const VM_WEIGHT = 30;

export async function fileJobs(suite: Suite, opts: { long: boolean; parts: readonly string[] }): Promise<Job[]> {
  const jobs: Job[] = [];
  const isChosen = opts.parts.length > 0;
  for (const pattern of FILES[suite] ?? []) {
    for await (const name of glob(pattern, { cwd: ROOT, exclude: (path) => path.includes("node_modules") })) {
      if (isChosen && !opts.parts.some((part) => name.includes(part))) continue;
      const text = await readFile(join(ROOT, name), "utf8");
      if (LONG.test(text) && !opts.long && !isChosen) continue;
      const { size } = await stat(join(ROOT, name));
      const weight = size * (suite === "unit" ? 1 : VM_WEIGHT);
      const reason = (mark: RegExp): string | null => mark.exec(text)?.[1] ?? null;
      jobs.push({ name, suite, alone: reason(ALONE), background: reason(BACKGROUND), images: reason(IMAGES), weight });
    }
  }
  return jobs;
}

export function commandJob(suite: Suite, name: string, command: string[], alone: string | null = null): Job {
  return { name, suite, command, alone, background: null, images: null, weight: 0 };
}
