// Files of templates: kept whole, packed or not, and under names that are no paths.

import assert from "node:assert/strict";
import { readdir, utimes } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { Uploads } from "../../src/e2b/templates/uploads.ts";
import { tempDir } from "../http/helpers/serve.ts";

async function* pieces(...content: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* content;
}

async function text(content: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(content)).toString();
}

test("what was sent is read again, unpacked", async (t) => {
  const uploads = new Uploads(join(await tempDir(t), "files"));
  assert.equal(await uploads.has("a", "1"), false);
  await uploads.write("a", "1", pieces(Buffer.from("as "), Buffer.from("it is")));
  await uploads.write("a", "../2", pieces(gzipSync("packed")));
  assert.equal(await text(await uploads.read("a", "1")), "as it is");
  assert.equal(await text(await uploads.read("a", "../2")), "packed");
  assert.equal(await uploads.has("b", "1"), false, "another template has its own");
  await assert.rejects(uploads.read("b", "1"), /were not sent/);
});

test("what breaks off leaves nothing, and what nobody uses goes", async (t) => {
  const folder = join(await tempDir(t), "files");
  const uploads = new Uploads(folder);
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("half");
    throw new Error("gone away");
  };
  await assert.rejects(uploads.write("a", "1", broken()), /gone away/);
  assert.deepEqual(await readdir(folder), []);
  await uploads.write("a", "1", pieces(Buffer.from("old")));
  const [name = ""] = await readdir(folder);
  await utimes(join(folder, name), new Date(0), new Date(0));
  await uploads.write("a", "2", pieces(Buffer.from("new")));
  assert.deepEqual([await uploads.has("a", "1"), await uploads.has("a", "2")], [false, true]);
});
