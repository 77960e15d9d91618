// Files of templates: complete, compressed or not, and stored under names that are no paths.

import assert from "node:assert/strict";
import { readdir, utimes } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { Uploads } from "../../src/e2b/templates/uploads.ts";
import { serve, tempDir } from "../helpers/serve.ts";

async function* pieces(...content: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* content;
}

async function text(content: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(content)).toString();
}

test("an upload is read again, decompressed", async (t) => {
  const uploads = new Uploads(join(await tempDir(t), "files"));
  assert.equal(await uploads.has("default", "a", "1"), false);
  await uploads.write("default", "a", "1", pieces(Buffer.from("as "), Buffer.from("it is")));
  await uploads.write("default", "a", "../2", pieces(gzipSync("packed")));
  assert.equal(await text(await uploads.read("default", "a", "1")), "as it is");
  assert.equal(await text(await uploads.read("default", "a", "../2")), "packed");
  assert.equal(await uploads.has("default", "b", "1"), false, "another template has its own");
  await assert.rejects(uploads.read("default", "b", "1"), /were not sent/);
});

test("an interrupted upload leaves nothing, and an unused one is removed", async (t) => {
  const folder = join(await tempDir(t), "files");
  const uploads = new Uploads(folder);
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("half");
    throw new Error("gone away");
  };
  await assert.rejects(uploads.write("default", "a", "1", broken()), /gone away/);
  assert.deepEqual(await readdir(folder), []);
  await uploads.write("default", "a", "1", pieces(Buffer.from("old")));
  const [name = ""] = await readdir(folder);
  await utimes(join(folder, name), new Date(0), new Date(0));
  await uploads.write("default", "a", "2", pieces(Buffer.from("new")));
  assert.deepEqual([await uploads.has("default", "a", "1"), await uploads.has("default", "a", "2")], [false, true]);
});

test("of many files the least recently used are removed", async (t) => {
  const folder = join(await tempDir(t), "files");
  const uploads = new Uploads(folder);
  for (let at = 0; at < 257; at++) {
    await uploads.write("default", "a", String(at), pieces(Buffer.from("x")));
    // reading a file keeps it from eviction
    if (at > 0) await uploads.read("default", "a", "0").then(async (content) => text(content));
  }
  assert.equal((await readdir(folder)).length, 256);
  assert.deepEqual(
    [await uploads.has("default", "a", "0"), await uploads.has("default", "a", "1"), await uploads.has("default", "a", "256")],
    [true, false, true],
  );
});

test("uploads are received a few at a time", async (t) => {
  const uploads = new Uploads(join(await tempDir(t), "files"));
  const open = Promise.withResolvers<void>();
  const slow = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("half");
    await open.promise;
  };
  const under = Array.from({ length: 4 }, async (_, at) => uploads.write("default", "a", String(at), slow()));
  await assert.rejects(uploads.write("default", "a", "5", pieces(Buffer.from("x"))), { code: "BUSY" });
  open.resolve();
  await Promise.all(under);
  await uploads.write("default", "a", "5", pieces(Buffer.from("x")));
});

test("an upload address is valid for an hour, and for nothing else", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_800_000_000_000 });
  const { ask, services } = await serve(t);
  const { token: key } = services.tokens.create({ name: "ci", scope: "admin", max_sandboxes: null });
  const { url } = (await ask("/templates/shop/files/abc", { tcp: true, headers: { "x-api-key": key } })).json();
  const address = new URL(String(url));
  const put = async (query: URLSearchParams): Promise<number> =>
    (await ask(`${address.pathname}?${query.toString()}`, { tcp: true, method: "PUT", body: Buffer.from("x") })).status;
  assert.equal(await put(address.searchParams), 200);
  const later = new URLSearchParams(address.searchParams);
  later.set("expires", String(Number(later.get("expires")) + 3600));
  assert.equal(await put(later), 401, "who has the address does not choose its end");
  t.mock.timers.tick(3601 * 1000);
  assert.equal(await put(address.searchParams), 401);
});
