// Multipart forms, split at arbitrary positions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { boundaryOf, readParts } from "../../src/e2b/envd/multipart.ts";

const FORM = [
  "preamble\r\n--B\r\n",
  'Content-Disposition: form-data; name="file"; filename="/a/ä %22b\\"%0D.txt"\r\nContent-Type: text/plain\r\n\r\n',
  "one\r\n--not\r\n-\r\n--B\r\n",
  'content-disposition: form-data; name=other\r\n\r\n\r\n--B\r\nContent-Disposition: form-data; filename="c"; name="file"\r\n\r\n',
  "\r\n\0\r\n--B--\r\nepilogue",
].join("");

async function* cut(text: string, size: number): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(text: string, size: number): Promise<unknown[]> {
  const parts: unknown[] = [];
  for await (const { name, filename, content } of readParts(cut(text, size), "B")) {
    const pieces: Buffer[] = [];
    for await (const piece of content) pieces.push(piece);
    parts.push([name, filename, Buffer.concat(pieces).toString()]);
  }
  return parts;
}

test("every part is complete, for any split of the bytes", async () => {
  const expected = [
    ["file", '/a/ä "b"\r.txt', "one\r\n--not\r\n-"],
    ["other", undefined, ""],
    ["file", "c", "\r\n\0"],
  ];
  for (let size = 1; size < FORM.length + 10; size++) assert.deepEqual(await read(FORM, size), expected, `pieces of ${size}`);
});

test("the unread rest of a part is skipped", async () => {
  const names: string[] = [];
  for await (const { name } of readParts(cut(FORM, 7), "B")) names.push(name);
  assert.deepEqual(names, ["file", "other", "file"]);
});

test("a truncated or malformed form is refused", async () => {
  const isBad = (error: unknown): boolean => error instanceof ForkdError && error.code === "BAD_REQUEST";
  for (const wrong of [
    "",
    "no boundary",
    "--B",
    "--B\r\nno end of headers",
    "--Bx\r\n\r\n",
    FORM.slice(0, -20),
    `--B\r\n${"x".repeat(20_000)}`,
  ])
    await assert.rejects(read(wrong, 1000), isBad, JSON.stringify(wrong.slice(0, 30)));
});

test("the boundary is read from the type", () => {
  assert.equal(boundaryOf('multipart/form-data; boundary="a b"; x=y'), "a b");
  assert.equal(boundaryOf("Multipart/Form-Data;boundary=----x"), "----x");
  for (const other of [undefined, "application/octet-stream", "multipart/mixed; boundary=x"]) assert.equal(boundaryOf(other), null);
});
