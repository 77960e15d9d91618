import assert from "node:assert/strict";
import { resolve } from "node:path";
import { test } from "node:test";
import { addPair, addShare, addWords, duration, durationOrNever, positiveInteger, splitWords, wholeNumber } from "../src/options/values.ts";

test("durations have units, and seconds without one", () => {
  assert.deepEqual(["90", "90s", "10m", "2h", "1d", "1.5m", "0.5h"].map(duration), [90, 90, 600, 7200, 86_400, 90, 1800]);
  for (const text of ["", "0", "-1", "5w", "m", "1e3", "0.5", "10 m", "never"]) assert.throws(() => duration(text), /such as 90/, text);
  assert.equal(durationOrNever("never"), "never");
});

test("pairs keep every = after the first, and add up", () => {
  assert.deepEqual(addPair("B==", addPair("A=1=2")), { A: "1=2", B: "=" });
  for (const text of ["", "A", "=1"]) assert.throws(() => addPair(text), /KEY=VALUE/);
});

test("a share is a folder of this machine and a place in the guest; only the last colon separates", () => {
  assert.deepEqual(addShare("/a:b:/c", addShare("x/../docs:/mnt")), [
    { source: resolve("docs"), target: "/mnt" },
    { source: "/a:b", target: "/c" },
  ]);
  assert.deepEqual(addShare("docs"), [{ source: resolve("docs"), target: resolve("docs") }]);
  for (const text of ["", ":/b", "/a:", "/a:b", "/a:./b"]) assert.throws(() => addShare(text), /FOLDER:/, text);
});

test("lists are separated by commas or blanks, and add up", () => {
  assert.deepEqual(addWords("c", addWords("a, b")), ["a", "b", "c"]);
});

test("counts are whole numbers", () => {
  assert.deepEqual(["1", "1000"].map(positiveInteger), [1, 1000]);
  assert.equal(wholeNumber("0"), 0);
  for (const text of ["0", "-1", "1.5", "1e3", "0x10", "", " 1"]) assert.throws(() => positiveInteger(text), /whole number/, text);
});

test("a command is split into words without a shell", () => {
  assert.deepEqual(splitWords(`python3 -c 'print("a b")' "x\\"y" a\\ b '' $HOME;`), [
    "python3",
    "-c",
    'print("a b")',
    'x"y',
    "a b",
    "",
    "$HOME;",
  ]);
  assert.deepEqual(splitWords('["a b", "c"]'), ["a b", "c"]);
  for (const text of ["", "  ", "'a", 'a "b', "a\\", "[1]", "[]", "[a"]) assert.throws(() => splitWords(text), text);
});
