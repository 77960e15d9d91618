import assert from "node:assert/strict";
import { test } from "node:test";
import { formatBytes, formatTable } from "../src/output.ts";

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

test("control characters never reach the terminal", () => {
  const table = formatTable(["\x1b[31mred\x07\nline"], [{ title: "T", value: (row) => row }]);
  assert.equal(table, "T\n [31mred line");
});

test("sizes have a unit", () => {
  assert.deepEqual([0, 1023, 1024, 1024 ** 3 * 1.5].map(formatBytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
});
