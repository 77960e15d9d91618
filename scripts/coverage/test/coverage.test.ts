// The coverage report: lines, branches, and the sum over processes.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { Executed } from "../executed.ts";
import { ROOT } from "../places.ts";
import { gapLine, gapsOf, totalsText } from "../report.ts";
import { versionOf } from "../rust.ts";
import { readSource } from "../source.ts";

import type { ProcessCoverage } from "../executed.ts";

const PATH = "packages/daemon/src/fake.ts";
const url = pathToFileURL(join(ROOT, PATH)).href;
const range = (startOffset: number, endOffset: number, count: number) => ({ startOffset, endOffset, count });

test("comments, types and closing brackets are not lines of code, and offsets are those of the file", () => {
  const text = `// ä
type A = {
  b: "ö";
};
/* x
y */
export function f(a: A): string {
  return a.b as string; // why
}
`;
  const { lines } = readSource(text);
  assert.deepEqual(
    lines.map(({ line, start, end }) => [line, text.slice(start, end)]),
    [
      [7, "export function f(a: A): string {"],
      [8, "return a.b as string;"],
    ],
  );
});

test("the arms of if, ?:, switch and of the logical operators are branches, and V8 counts which were taken", async () => {
  const text = `type T = { a?: number };
const hit = (): number => 1, miss = hit;
export function f(t: T, n: number): unknown {
  if (n > 1) return miss();
  if (n > 5) { miss(); } else { hit(); }
  const all = [n > 0 ? hit() : miss(), t.a ?? miss(), t.a && hit(), t.a || (miss())];
  switch (n) { case 1: case 7: hit(); break; default: miss(); }
  return all;
}
f({ a: 1 }, 1);
`;
  const dir = await mkdtemp(join(tmpdir(), "forkd-coverage-"));
  try {
    const file = join(dir, "arms.ts");
    await writeFile(file, text);
    const out = join(dir, "out");
    await promisify(execFile)(process.execPath, [file], { env: { ...process.env, NODE_V8_COVERAGE: out, NODE_OPTIONS: "" } });
    const [name = ""] = await readdir(out);
    const { result } = JSON.parse(await readFile(join(out, name), "utf8")) as ProcessCoverage;
    const executed = new Executed();
    executed.add({ result: result.filter((script) => script.url.endsWith("/arms.ts")).map((script) => ({ ...script, url })) });
    const arms = readSource(text).arms.map((at) => [/hit|miss/.exec(text.slice(at))?.[0], executed.isExecuted(PATH, at, at + 1)]);
    assert.equal(arms.length, 10);
    for (const [called, isTaken] of arms) assert.equal(isTaken, called === "hit");
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("code that any process executed counts as executed", () => {
  const executed = new Executed();
  executed.add({ result: [{ url, functions: [{ ranges: [range(0, 100, 1), range(10, 40, 0)] }, { ranges: [range(50, 60, 0)] }] }] });
  executed.add({ result: [{ url, functions: [{ ranges: [range(0, 130, 1), range(30, 40, 0)] }, { ranges: [range(50, 60, 0)] }] }] });
  executed.add({ result: [{ url: "file:///elsewhere/packages/daemon/src/fake.ts", functions: [{ ranges: [range(0, 100, 1)] }] }] });
  const found = [0, 10, 30, 50, 60, 120].map((at) => executed.isExecuted(PATH, at, at + 10));
  assert.deepEqual(found, [true, true, false, false, true, true]);
  assert.equal(executed.isExecuted("packages/daemon/src/never-loaded.ts", 0, 1), false);
});

test("a process of the command line is counted, and an incomplete file is read at the end of the run", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-coverage-"));
  try {
    // Separates this coverage from that of the outer run, in both directions
    const env = { ...process.env, NODE_V8_COVERAGE: dir, NODE_DISABLE_COMPILE_CACHE: "1", NODE_OPTIONS: "" };
    await promisify(execFile)(process.execPath, [join(ROOT, "packages/cli/bin/forkd.mjs"), "--version"], { env });
    const half = join(dir, "coverage-1-1-0.json");
    await writeFile(half, '{"result":');
    const later = Date.now() / 1000 + 3600;
    await utimes(half, later, later);
    const executed = new Executed();
    await executed.collect(dir, { isLast: false });
    assert.equal(executed.broken, 0);
    await executed.collect(dir, { isLast: true });
    assert.deepEqual([executed.processes, executed.broken, await readdir(dir)], [1, 1, []]);
    assert.ok(executed.isExecuted("packages/cli/src/main.ts", 0, 1));
    await executed.save(dir);
    const again = new Executed();
    await again.collect(dir, { isLast: true });
    const path = "packages/cli/src/exit.ts";
    for (let at = 0; at < 8000; at++) assert.equal(again.isExecuted(path, at, at + 1), executed.isExecuted(path, at, at + 1));
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("adjacent untested lines are one place, and the largest place is first", () => {
  const lines = [1, 2, 4, 7, 9].map((line) => ({ line, covered: line === 2 }));
  const files = [{ path: "a/b.ts", lines, branches: [true, false] }];
  assert.deepEqual(gapsOf(files).map(gapLine), ["    3 lines  a/b.ts:4-9", "    1 lines  a/b.ts:1"]);
  assert.equal(
    totalsText("All", files, "branches", () => "a"),
    [
      "All                  lines  20.0 % (1 of 5)   branches  50.0 % (1 of 2)",
      "  a                  lines  20.0 % (1 of 5)   branches  50.0 % (1 of 2)",
    ].join("\n"),
  );
});

test("LLVM tools that are missing, or that do not support --version, are skipped", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-coverage-"));
  try {
    const tool = async (name: string, script: string): Promise<string> => {
      await writeFile(join(dir, name), `#!/bin/sh\n${script}\n`);
      await chmod(join(dir, name), 0o755);
      return join(dir, name);
    };
    assert.equal(await versionOf(await tool("new", "echo '  LLVM version 22.1.8'")), "22");
    assert.equal(await versionOf(await tool("old", "echo 'Unknown command!' >&2; exit 1")), undefined);
    assert.equal(await versionOf(join(dir, "none")), undefined);
  } finally {
    await rm(dir, { recursive: true });
  }
});
