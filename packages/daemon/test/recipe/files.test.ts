// Files of recipes: valid uploads, and equality of two uploads.

import assert from "node:assert/strict";
import { chmod, mkdir, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { readTar } from "@forkd/runtime/archive/tar-read";
import { RecipeFiles } from "../../src/recipe/files.ts";
import { tempDir } from "../helpers/serve.ts";
import { tarOf, type Odd } from "./helpers/tar.ts";
import type { TestContext } from "node:test";

const { signal } = new AbortController();

async function received(t: TestContext, files: Record<string, string>, others: Odd[] = []): Promise<RecipeFiles> {
  return RecipeFiles.receive(tarOf(files, others), join(await tempDir(t), "files.tar"), signal);
}

test("files of an upload are read from it, and links resolve only to other files of it", async (t) => {
  const links: Odd[] = [
    { path: "x/link", type: "symlink", linkname: "a" },
    { path: "x/out", type: "symlink", linkname: "../../etc/passwd" },
    { path: "x/host", type: "symlink", linkname: "/etc/passwd" },
    { path: "x/round", type: "symlink", linkname: "round" },
    { path: "x/hard", type: "hardlink", linkname: "x/a" },
  ];
  const files = await received(t, { "x/a": "A", "./x/sub/b": "B" }, links);
  const read = async (path: string): Promise<string> => text(files.read(path));
  assert.deepEqual([await read("x/a"), await read("./x/../x/link"), await read("x/hard"), await read("x/sub/b")], ["A", "A", "A", "B"]);
  assert.deepEqual(
    ["x", "x/sub", "x/none", "x/out", "x/host", "x/round", "../x/a", "/x/a"].map((path) => files.find(path)),
    ["folder", "folder", undefined, undefined, undefined, undefined, undefined, "file"],
  );
  await assert.rejects(read("x/host"), { code: "NOT_FOUND" });
});

for (const [what, odd] of [
  ["a path upwards", { path: "../a", type: "file" }],
  ["an absolute path", { path: "/etc/x", type: "file" }],
  ["a device", { path: "null", type: "char" }],
  ["a pipe", { path: "pipe", type: "fifo" }],
  ["a hard link to nothing", { path: "x", type: "hardlink", linkname: "/etc/passwd" }],
  ["a file below a file", { path: "a/b", type: "file" }],
] as [string, Odd][])
  test(`an upload with ${what} is refused`, async (t) => {
    await assert.rejects(received(t, { a: "A" }, [odd]), { code: "BAD_REQUEST" });
  });

test("an upload that is not an archive, or is truncated, is refused", async (t) => {
  const path = join(await tempDir(t), "files.tar");
  await assert.rejects(RecipeFiles.receive(Readable.from([Buffer.alloc(1024, "x")]), path, signal), { code: "BAD_REQUEST" });
  const whole = Buffer.concat(await Array.fromAsync(tarOf({ a: "A".repeat(600) })));
  await assert.rejects(RecipeFiles.receive(Readable.from([whole.subarray(0, 700)]), `${path}2`, signal), { code: "BAD_REQUEST" });
});

test("a folder is packed with its files, folders and links, and belongs to root", async (t) => {
  const files = await received(t, { "x/data/sub/b": "B" }, [{ path: "x/data/link", type: "symlink", linkname: "sub/b" }]);
  const entries = [];
  for await (const { header, body } of readTar(Readable.from(files.pack("x/data")), "packed"))
    entries.push([header.path, header.type, header.uid, header.linkname, await text(body())]);
  assert.deepEqual(entries, [
    ["link", "symlink", 0, "sub/b", ""],
    ["sub/", "dir", 0, "", ""],
    ["sub/b", "file", 0, "", "B"],
  ]);
});

test("the hash covers names, modes, contents and links, not times, and is equal for an upload and a folder", async (t) => {
  const root = await tempDir(t);
  await mkdir(join(root, "f", "sub"), { recursive: true });
  await writeFile(join(root, "f", "sub", "a"), "1");
  await chmod(join(root, "f", "sub", "a"), 0o644);
  await chmod(join(root, "f", "sub"), 0o755);
  await symlink("sub/a", join(root, "f", "link"));
  const hash = async (): Promise<string> => (await RecipeFiles.at(root)).hash("f");
  const seen = [await hash()];
  const uploaded = await received(t, { "f/sub/a": "1" }, [{ path: "f/link", type: "symlink", linkname: "sub/a" }]);
  assert.equal(await uploaded.hash("f"), seen[0]);
  const changed = async (change: () => Promise<unknown>): Promise<void> => {
    await change();
    const now = await hash();
    assert.ok(!seen.includes(now));
    seen.push(now);
  };
  await utimes(join(root, "f", "sub", "a"), 1, 1);
  assert.equal(await hash(), seen[0]);
  await changed(async () => writeFile(join(root, "f", "sub", "a"), "2"));
  await changed(async () => chmod(join(root, "f", "sub", "a"), 0o700));
  await changed(async () => writeFile(join(root, "f", "b"), ""));
  await changed(async () => symlink("b", join(root, "f", "other")));
  await changed(async () => mkdir(join(root, "f", "empty")));
});
