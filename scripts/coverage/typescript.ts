// TypeScript coverage of all files in packages/*/src, including those that were never loaded.

import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "./places.ts";
import { readSource } from "./source.ts";

import type { Executed } from "./executed.ts";
import type { FileCoverage } from "./report.ts";

export async function measureTypeScript(executed: Executed): Promise<FileCoverage[]> {
  const files: FileCoverage[] = [];
  for await (const path of glob("packages/*/src/**/*.ts", { cwd: ROOT })) {
    const { lines, arms } = readSource(await readFile(join(ROOT, path), "utf8"));
    files.push({
      path,
      lines: lines.map(({ line, start, end }) => ({ line, covered: executed.isExecuted(path, start, end) })),
      branches: arms.map((at) => executed.isExecuted(path, at, at + 1)),
    });
  }
  return files;
}
