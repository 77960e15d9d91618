// Pages of process output.

import assert from "node:assert/strict";
import { test } from "node:test";
import { OutputPage } from "../src/output.ts";
import type { ProcessStreamEvent } from "forkd";

function started(stdout = 0, stderr = 0): ProcessStreamEvent {
  return { type: "started", cursor: "", id: 1, pid: 2, tag: null, terminal: false, stdout_offset: stdout, stderr_offset: stderr };
}

function printed(type: "stdout" | "stderr", offset: number, text: string | Buffer): ProcessStreamEvent {
  return { type, cursor: "", offset, bytes: Buffer.from(text as string) };
}

test("both channels have their own position", () => {
  const page = new OutputPage(100);
  for (const event of [started(10, 20), printed("stdout", 10, "one"), printed("stderr", 20, "err"), printed("stdout", 13, " two")])
    page.add(event);
  assert.deepEqual(page.text(true), { stdout: "one two", stderr: "err", next: "17-23", isCut: false, lost: 0 });
});

test("what does not fit begins the next page", () => {
  const page = new OutputPage(4);
  for (const event of [started(), printed("stdout", 0, "abc"), printed("stdout", 3, "def"), printed("stderr", 0, "e")]) page.add(event);
  assert.deepEqual(page.text(true), { stdout: "abcd", stderr: "e", next: "4-1", isCut: true, lost: 0 });
  assert.equal(page.bytes, 7);
});

test("a character is not split between pages, except at the end of the output", () => {
  const euro = Buffer.from("€");
  const page = new OutputPage(100);
  for (const event of [started(), printed("stdout", 0, Buffer.concat([Buffer.from("a"), euro.subarray(0, 2)]))]) page.add(event);
  assert.deepEqual(page.text(false), { stdout: "a", stderr: "", next: "1-0", isCut: false, lost: 0 });
  assert.equal(page.text(true).stdout, "a\uFFFD");
});

test("lost bytes are counted, and a page ends before a gap", () => {
  const before = new OutputPage(100);
  for (const event of [started(), { type: "lost", cursor: "", channel: "stdout", bytes: 5 } as const, printed("stdout", 5, "x")])
    before.add(event);
  assert.deepEqual(before.text(true), { stdout: "x", stderr: "", next: "6-0", isCut: false, lost: 5 });
  const within = new OutputPage(100);
  for (const event of [
    started(),
    printed("stdout", 0, "ab"),
    { type: "lost", cursor: "", channel: "stdout", bytes: 5 } as const,
    printed("stdout", 7, "x"),
  ])
    within.add(event);
  assert.deepEqual(within.text(true), { stdout: "ab", stderr: "", next: "2-0", isCut: true, lost: 5 });
});

test("a page without events is empty", () => {
  const page = new OutputPage(100);
  page.add(started(3, 4));
  assert.equal(page.isEmpty, true);
  assert.equal(page.text(false).next, "3-4");
});
