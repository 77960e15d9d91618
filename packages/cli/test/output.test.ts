import assert from "node:assert/strict";
import { test } from "node:test";
import { formatBytes, formatTable } from "../src/terminal/output.ts";

test("columns are as wide as their content and the last one is not padded", () => {
  const rows = [
    { name: "a", bytes: 5 },
    { name: "longer", bytes: 12345 },
  ];
  const table = formatTable(rows, [
    { title: "NAME", value: (row) => row.name },
    { title: "BYTES", value: (row) => String(row.bytes), align: "right" },
    { title: "NOTE", value: () => "x" },
  ]);
  assert.equal(table, "NAME    BYTES  NOTE\na           5  x\nlonger  12345  x");
});

test("a table that is too wide wraps only the columns that may wrap", () => {
  const rows = [{ id: "sb-abcdefghijklmnop", why: "the first word and averyveryverylongword" }];
  const columns = [
    { title: "ID", value: (row: { id: string }) => row.id },
    { title: "WHY", value: (row: { why: string }) => row.why, wraps: true },
    { title: "N", value: () => "1", align: "right" as const },
  ];
  const table = formatTable(rows, columns, 38).split("\n");
  assert.deepEqual(table, [
    "ID                   WHY             N",
    "sb-abcdefghijklmnop  the first word  1",
    "                     and",
    "                     averyveryveryl",
    "                     ongword",
  ]);
  assert.equal(formatTable(rows, columns, 200).split("\n").length, 2);
  // narrower than an unbreakable word
  assert.match(formatTable(rows, columns, 10), /sb-abcdefghijklmnop/);
});

test("an optional column is left out when no row has a value", () => {
  const columns = [
    { title: "A", value: (row: { b: string }) => row.b },
    { title: "B", value: (row: { b: string }) => row.b, optional: true },
  ];
  assert.equal(formatTable([{ b: "-" }], columns), "A\n-");
  assert.equal(formatTable([{ b: "-" }, { b: "x" }], columns), "A  B\n-  -\nx  x");
});

test("control characters never reach the terminal", () => {
  const table = formatTable(["\x1b[31mred\x07\nline"], [{ title: "T", value: (row) => row }]);
  assert.equal(table, "T\n [31mred line");
});

test("sizes have a unit", () => {
  assert.deepEqual([0, 1023, 1024, 1024 ** 3 * 1.5].map(formatBytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
});
