// The check for the order of rooms: violations and allowed imports.

import assert from "node:assert/strict";
import { test } from "node:test";
import { engineProblems, folderCycles, importsIn, roomProblems, type Package } from "../rooms.ts";

const PKG: Package = {
  root: "p/src",
  others: ["@forkd/runtime/"],
  narrow: { low: ["@forkd/runtime/errors"] },
  rooms: ["base.ts", "low", ["left", "right"], "a+b", "top"],
};

function problemsOf(path: string, ...imports: string[]): string[] {
  return roomProblems(PKG, [{ path: `p/src/${path}`, imports }]);
}

test("a room may import earlier rooms, itself, libraries and the package's own description", () => {
  assert.deepEqual(problemsOf("top/x.ts", "../low/y.ts", "../base.ts", "./z.ts", "../left/x.ts", "node:fs", "zod"), []);
  assert.deepEqual(problemsOf("base.ts", "../package.json"), []);
});

test("an import of a later room is reported with both rooms", () => {
  assert.deepEqual(problemsOf("low/x.ts", "../top/y.ts"), ["p/src/low/x.ts: imports ../top/y.ts, but top comes after low"]);
  assert.deepEqual(problemsOf("low/deep/x.ts", "../../top/y.ts").length, 1);
  assert.deepEqual(problemsOf("base.ts", "./low/y.ts").length, 1);
});

test("parallel rooms do not import each other, and joined folders may", () => {
  assert.deepEqual(problemsOf("left/x.ts", "../right/y.ts"), [
    "p/src/left/x.ts: imports ../right/y.ts, but left and right stand side by side",
  ]);
  assert.deepEqual(problemsOf("a/x.ts", "../b/y.ts"), []);
});

test("a room that is in no list is a problem, as a source and as a target of imports", () => {
  assert.deepEqual(problemsOf("new/x.ts"), ["p/src/new/x.ts: new is not in the list of rooms"]);
  assert.equal(problemsOf("top/x.ts", "../new/y.ts").length, 1);
});

test("another package is visible only from the rooms that list it, and never by a path", () => {
  assert.deepEqual(problemsOf("top/x.ts", "@forkd/runtime/agent/clock"), []);
  assert.deepEqual(problemsOf("low/x.ts", "@forkd/runtime/errors"), []);
  assert.deepEqual(problemsOf("low/x.ts", "@forkd/runtime/agent/clock"), [
    "p/src/low/x.ts: imports @forkd/runtime/agent/clock, which this room does not see",
  ]);
  assert.equal(problemsOf("top/x.ts", "@forkd/daemon").length, 1);
  assert.equal(problemsOf("top/x.ts", "forkd").length, 1);
  assert.equal(problemsOf("top/x.ts", "../../../q/src/x.ts").length, 1);
});

test("every form of import is read, types included", () => {
  const text = `import type { A } from "./a.ts";
import {
  b,
  type B,
} from "./b.ts";
export { c } from "./c.ts";
import "./d.ts";
const { e } = await import("./e.ts");
`;
  assert.deepEqual(importsIn(text), ["./a.ts", "./b.ts", "./c.ts", "./d.ts", "./e.ts"]);
});

test("folders of a room that import each other are reported once", () => {
  const sources = [
    { path: "p/src/a/one/x.ts", imports: ["../two/x.ts", "../three/x.ts"] },
    { path: "p/src/a/two/x.ts", imports: ["../three/x.ts"] },
    { path: "p/src/a/three/x.ts", imports: ["../two/y.ts", "../z.ts"] },
    { path: "p/src/a/z.ts", imports: ["./three/x.ts"] },
  ];
  assert.deepEqual(folderCycles(PKG, sources), ["p/src/a/three, p/src/a/two"]);
  assert.deepEqual(folderCycles(PKG, sources.slice(0, 2)), []);
});

test("an engine is named in its own folder only, and chosen in one file", () => {
  const runtime = "packages/runtime/src";
  const text = 'import { qemuDriver } from "./qemu/driver.ts";\n';
  assert.deepEqual(engineProblems(`${runtime}/vmm/qemu/args.ts`, "// QEMU\n"), []);
  assert.deepEqual(engineProblems(`${runtime}/vmm/engine.ts`, text), []);
  assert.deepEqual(engineProblems(`${runtime}/vmm/leftovers.ts`, text), [
    `${runtime}/vmm/leftovers.ts: imports ./qemu/driver.ts, but only ${runtime}/vmm/engine.ts does`,
  ]);
  assert.deepEqual(engineProblems(`${runtime}/sandbox/boot.ts`, "const a = 1;\n// as QEMU does\n"), [
    `${runtime}/sandbox/boot.ts:2: names an engine: // as QEMU does`,
  ]);
  assert.equal(engineProblems("packages/daemon/src/x.ts", 'import { x } from "@forkd/runtime/vmm/qemu/args";\n').length, 1);
});
