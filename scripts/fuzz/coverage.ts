// V8 block coverage of the fuzzed sources.

import { Session, type Profiler } from "node:inspector";

export class Coverage {
  readonly #session = new Session();
  readonly #prefixes: readonly string[];
  /** by URL: whether each character was executed */
  readonly #scripts = new Map<string, Uint8Array>();
  #later: { url: string; at: number }[] = [];

  /** @param prefixes URL prefixes of the scripts that count */
  constructor(prefixes: readonly string[]) {
    this.#prefixes = prefixes;
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  }

  /**
   * Whether code was executed for the first time since the last call. It counts as executed from now on; with `later`,
   * from settle() on
   */
  grew({ later = false } = {}): boolean {
    let isNew = false;
    for (const { url, functions } of this.#take()) {
      const end = functions.reduce((most, { ranges }) => Math.max(most, ranges[0]?.endOffset ?? 0), 0);
      let covered = this.#scripts.get(url) ?? new Uint8Array(0);
      if (covered.length < end) {
        const longer = new Uint8Array(end);
        longer.set(covered);
        this.#scripts.set(url, (covered = longer));
      }
      const now = painted(functions, end);
      for (let at = 0; at < end; at++) {
        if (now[at] === 0 || covered[at] === 1) continue;
        isNew = true;
        if (later) this.#later.push({ url, at });
        else covered[at] = 1;
      }
    }
    return isNew;
  }

  settle(): void {
    for (const { url, at } of this.#later) this.#scripts.get(url)?.fill(1, at, at + 1);
    this.#later = [];
  }

  /** Number of executed characters, and of all characters, including types and comments */
  get size(): { covered: number; all: number } {
    const all = [...this.#scripts.values()];
    return {
      covered: all.reduce((sum, covered) => sum + covered.reduce((ones, one) => ones + one, 0), 0),
      all: all.reduce((sum, { length }) => sum + length, 0),
    };
  }

  close(): void {
    this.#session.disconnect();
  }

  #take(): Profiler.ScriptCoverage[] {
    let taken: Profiler.ScriptCoverage[] = [];
    // in the same thread, the callback runs before post() returns
    this.#session.post("Profiler.takePreciseCoverage", (error, result) => {
      if (error) throw error;
      taken = result.result;
    });
    return taken.filter(({ url, functions }) => functions.length > 0 && this.#prefixes.some((prefix) => url.startsWith(prefix)));
  }
}

/** Outer ranges before inner ones: the innermost range is the valid one */
function painted(functions: readonly Profiler.FunctionCoverage[], end: number): Uint8Array {
  const executed = new Uint8Array(end);
  const ranges = functions.flatMap((one) => one.ranges);
  for (const { startOffset, endOffset, count } of ranges.toSorted((a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset))
    executed.fill(count > 0 ? 1 : 0, startOffset, endOffset);
  return executed;
}
