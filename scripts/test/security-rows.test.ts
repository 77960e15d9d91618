// The check that each table row in SECURITY.md has a test.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { rowProblems, tableRows } from "../../tests/helpers/security-rows.ts";

const SECURITY = await readFile(join(resolve(import.meta.dirname, "..", ".."), "SECURITY.md"), "utf8");

test("every row has a test, and every test a row", () => {
  assert.deepEqual(rowProblems(SECURITY), []);
});

test("a new, changed or removed row is reported", () => {
  const rows = SECURITY.split("\n").filter((line) => line.startsWith("| read the programs"));
  assert.equal(rows.length, 1);
  const [row = ""] = rows;
  assert.match(
    rowProblems(SECURITY.replace(row, `${row}\n| read minds | write them |`)).join(),
    /^no test in .* for the row: read minds \| write them$/,
  );
  assert.equal(rowProblems(SECURITY.replace("no home,", "")).length, 2);
  assert.match(rowProblems(SECURITY.replace(`${row}\n`, "")).join(), /^.* tests a row that is not there: read the programs/);
});

test("table heads and other lines are not rows", () => {
  assert.deepEqual(tableRows("| a | b |\n|---|---|\n| 1 | 2 |\n\ntext | with a line\n"), [["1", "2"]]);
});
