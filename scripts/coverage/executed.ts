// Sum of the V8 coverage of all Node processes (NODE_V8_COVERAGE): the executed characters of each file.

import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT } from "./places.ts";

export type ProcessCoverage = { result: ScriptCoverage[] };
type ScriptCoverage = { url: string; functions: { ranges: Range[] }[] };
type Range = { startOffset: number; endOffset: number; count: number };

const PREFIX = `${pathToFileURL(ROOT).href}/`;
const COUNTED = /^packages\/[^/]+\/src\//;
/** A file written more recently may be incomplete */
const SETTLED_MS = 3000;

export class Executed {
  /** number of processes added */
  processes = 0;
  /** number of unreadable files */
  broken = 0;
  readonly #files = new Map<string, Uint8Array>();

  /** Adds and removes the files of ended processes. `isLast`: no process is writing any more */
  async collect(dir: string, opts: { isLast: boolean }): Promise<void> {
    for (const name of await readdir(dir)) {
      if (!/^coverage-.*\.json$/.test(name)) continue;
      const path = join(dir, name);
      if (!opts.isLast && Date.now() - (await stat(path)).mtimeMs < SETTLED_MS) continue;
      this.#addText(await readFile(path, "utf8"));
      await rm(path);
    }
  }

  add({ result }: ProcessCoverage): void {
    this.processes++;
    for (const { url, functions } of result) {
      const path = url.startsWith(PREFIX) ? url.slice(PREFIX.length) : "";
      if (!COUNTED.test(path)) continue;
      const ranges = functions.flatMap((one) => one.ranges);
      const length = Math.max(...ranges.map(({ endOffset }) => endOffset));
      // An inner range follows its outer range and is more precise.
      const executed = new Uint8Array(length);
      for (const { startOffset, endOffset, count } of ranges) executed.fill(count > 0 ? 1 : 0, startOffset, endOffset);
      const before = this.#files.get(path);
      // Another process may have loaded the file with appended code.
      const [more, less] = before === undefined || before.length < length ? [executed, before] : [before, executed];
      less?.forEach((was, at) => (more[at]! |= was));
      this.#files.set(path, more);
    }
  }

  /** Writes the sum in the format of one process, for `collect` in a later run */
  async save(dir: string): Promise<void> {
    const result = [...this.#files].map(([path, executed]) => ({ url: PREFIX + path, functions: [{ ranges: rangesOf(executed) }] }));
    await writeFile(join(dir, "coverage-sum.json"), JSON.stringify({ result } satisfies ProcessCoverage));
  }

  /** Whether any character between the offsets was executed */
  isExecuted(path: string, start: number, end: number): boolean {
    return this.#files.get(path)?.subarray(start, end).includes(1) ?? false;
  }

  #addText(text: string): void {
    try {
      this.add(JSON.parse(text) as ProcessCoverage);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.broken++;
    }
  }
}

function rangesOf(executed: Uint8Array): Range[] {
  const ranges: Range[] = [];
  for (let startOffset = 0; startOffset < executed.length;) {
    const count = executed[startOffset]!;
    const end = executed.indexOf(1 - count, startOffset);
    const endOffset = end < 0 ? executed.length : end;
    ranges.push({ startOffset, endOffset, count });
    startOffset = endOffset;
  }
  return ranges;
}
