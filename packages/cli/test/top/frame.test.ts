import assert from "node:assert/strict";
import { test } from "node:test";
import { cellsOf } from "../../src/top/cells.ts";
import { bodyHeight, frame, plainLines } from "../../src/top/frame.ts";
import { settle, START, type TopState } from "../../src/top/keys.ts";
import { FACTS, node, NOW, rows, running } from "./samples.ts";

import type { Row } from "../../src/top/rows.ts";

function draw(shown: Row[], opts: { rows?: number; cols?: number; utf8?: boolean; state?: Partial<TopState> } = {}): string[] {
  const size = { rows: opts.rows ?? 10, cols: opts.cols ?? 80 };
  const state = settle({ ...START, ...opts.state }, shown, bodyHeight(size));
  return frame(shown, state, { size, utf8: opts.utf8 ?? true, now: NOW }).map(({ text }) => text);
}

test("80 columns show the tree with state, CPU, memory, age and process", () => {
  const lines = draw(rows()).map((line) => line.trimEnd());
  assert.deepEqual(lines, [
    "0 sandboxes, 0 snapshots, memory 0 B, by name",
    "TREE                             STATE         CPU      MEMORY   AGE     PROCESS",
    "[empty]",
    "[python]                                      51 %    15.0 MiB          30.0 MiB",
    "├ sb-1 (web)                     running       1 %    10.0 MiB    2h    20.0 MiB",
    "├ sb-2                           running      50 %     5.0 MiB    1m    10.0 MiB",
    "└ [login] from sb-1",
    "  └ sb-3                         suspended",
    "",
    "f fork  b branch  x end  / search  s sort  space fold  ? help  q quit",
  ]);
});

test("every size has exactly its lines and its columns", () => {
  for (const height of [1, 2, 3, 4, 5, 6, 24]) {
    for (const width of [1, 2, 7, 20, 40, 79, 80, 200]) {
      for (const state of [{}, { help: true }, { message: { text: "x".repeat(300), isError: true } }]) {
        const lines = draw(rows(), { rows: height, cols: width, state });
        assert.equal(lines.length, height, `${width} x ${height}`);
        for (const line of lines) assert.equal(cellsOf(line), width, `${width} x ${height}: ${JSON.stringify(line)}`);
      }
    }
  }
});

test("a small terminal keeps the selected row", () => {
  for (const height of [1, 2, 3])
    assert.ok(draw(rows(), { rows: height, state: { selected: "sb-2" } }).some((line) => line.includes("sb-2")));
  assert.match(draw(rows(), { rows: 1, state: { message: { text: "It failed.", isError: true } } })[0] ?? "", /^It failed\./);
});

test("columns are left out of a narrow terminal from the right", () => {
  const title = (cols: number): string => draw(rows(), { cols })[1]?.trim().replaceAll(/ +/g, " ") ?? "";
  assert.equal(title(200), "TREE STATE CPU MEMORY AGE PROCESS DISK");
  assert.equal(title(60), "TREE STATE CPU MEMORY");
  assert.equal(title(30), "TREE");
});

test("text of others cannot control the terminal, leave its line or reverse it", () => {
  const evil = "\u001b[2J\u001b]0;title\u0007a\nb\r\u009b31m\u202eevil\u2028\u200b";
  const shown = rows(
    {},
    { ...FACTS, tree: { roots: [node(evil, [running("sb-1", evil, { state: evil })], [], { branched_from: evil })] } },
  );
  const lines = [
    ...draw(shown, { state: { message: { text: evil, isError: true } } }),
    ...draw(shown, { state: { prompt: { kind: "search", question: evil, text: evil } } }),
    ...plainLines(shown, { width: Infinity, utf8: true, now: NOW }),
  ];
  assert.ok(lines.some((line) => line.includes("evil")));
  // oxlint-disable-next-line no-control-regex -- matches control characters
  for (const line of lines) assert.doesNotMatch(line, /[\u0000-\u001f\u007f-\u009f\u2028\u202e\u200b]/);
});

test("characters of two cells and marks do not move the columns", () => {
  const shown = rows({}, { ...FACTS, tree: { roots: [node("模板模板模板模板模板模板模板模板🚀e\u0301", [], [], { status: "failed" })] } });
  const line = draw(shown)[2] ?? "";
  assert.equal(cellsOf(line), 80);
  assert.equal(cellsOf(line.slice(0, line.indexOf("failed"))), 33);
});

test("a deep row keeps its name: the lines to its parents are cut", () => {
  let deep = node("leaf", [running("sb-0123456789abcdef")], []);
  for (let i = 0; i < 60; i++) deep = node(`t${i}`, [], [deep]);
  const shown = rows({}, { ...FACTS, tree: { roots: [deep] } });
  const lines = draw(shown, { state: { selected: "sb-0123456789abcdef" } });
  assert.ok(
    lines.some((line) => /^….*└ sb-012345/.test(line)),
    lines.join("\n"),
  );
});

test("without UTF-8 everything is ASCII", () => {
  // oxlint-disable-next-line no-control-regex -- matches everything but ASCII
  for (const line of draw(rows({ collapsed: new Set(["sn-python"]) }), { utf8: false, cols: 30 })) assert.match(line, /^[\x20-\x7e]*$/);
});

test("a collapsed snapshot shows how much is below it, a long tree where it stands", () => {
  assert.match(draw(rows({ collapsed: new Set(["sn-python"]) })).join("\n"), /▸ \[python\] \(4 below\)/);
  assert.match(draw(rows(), { rows: 5 }).at(-1) ?? "", /^1-3 of 6 {2}f fork/);
});

test("an empty tree and an empty search say what to do", () => {
  assert.match(draw([]).join("\n"), /There are no snapshots\. Make one with 'forkd snapshot create'\./);
  assert.match(draw([], { state: { view: { ...START.view, filter: "x" } } }).join("\n"), /Esc shows all again/);
});

test("a pipe gets all rows without padding and without empty columns", () => {
  const lines = plainLines(rows(), { width: Infinity, utf8: false, now: NOW });
  assert.equal(lines[0], "TREE                 STATE         CPU      MEMORY   AGE     PROCESS");
  assert.equal(lines[3], "|-sb-1 (web)         running       1 %    10.0 MiB    2h    20.0 MiB");
});
