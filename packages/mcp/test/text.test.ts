// Bytes as text: cut at character boundaries, base64 if they are not UTF-8.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cut, textOrBase64, wholeCharacters } from "../src/text.ts";

test("an incomplete character is left for the next page", () => {
  const bytes = Buffer.from("aä€😀");
  const whole = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10];
  assert.deepEqual(
    whole.map((_, length) => wholeCharacters(bytes.subarray(0, length))),
    whole,
  );
});

test("invalid bytes are not held back", () => {
  assert.equal(wholeCharacters(Buffer.from([0x80, 0x80, 0x80, 0x80, 0x80])), 5);
  assert.equal(wholeCharacters(Buffer.from([0x61, 0xff])), 1, "the start of a longer one, as far as anyone can tell");
});

test("text keeps its byte order mark, and other bytes are base64", () => {
  assert.deepEqual(textOrBase64(Buffer.from("\uFEFFhä")), { content: "\uFEFFhä", encoding: "utf8" });
  assert.deepEqual(textOrBase64(Buffer.from([0xff, 0x00])), { content: "/wA=", encoding: "base64" });
});

test("a text is cut by its bytes", () => {
  assert.equal(cut("abc", 3), "abc");
  assert.equal(cut("äöü", 5), "äö");
  assert.equal(cut("x".repeat(100), 10), "x".repeat(10));
});
