// Checks that imports follow the order of rooms in each package, and that only an engine's own folder names it.

import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { engineProblems, folderCycles, importsIn, PACKAGES, roomProblems, type Source } from "./rooms.ts";

const ROOT = join(import.meta.dirname, "..");

const problems: string[] = [];
for (const pkg of PACKAGES) {
  const sources: Source[] = [];
  for await (const path of glob(`${pkg.root}/**/*.{ts,tsx}`, { cwd: ROOT })) {
    const text = await readFile(join(ROOT, path), "utf8");
    sources.push({ path, imports: importsIn(text) });
    problems.push(...engineProblems(path, text));
  }
  problems.push(...roomProblems(pkg, sources));
  if (pkg.rooms) problems.push(...folderCycles(pkg, sources).map((circle) => `folders that import each other: ${circle}`));
}
for (const problem of problems) console.log(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
