// The written squashfs: every file has its original content.

import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../../src/host/command.ts";
import { writeSquashfs } from "../../src/image/squashfs.ts";

/** The search for duplicates of sqfstar 4.5 damaged images of such files in 5 of 5 runs */
const SIZES = [14_201, 44_891, 92_981, 158_471, 241_361, 104_754];
const ROUNDS = 31;

/** Files of one size differ in their last bytes only */
function contentOf(size: number, round: number): string {
  const line = `struct of_${size} { typedef T type; };\n`;
  return `${line.repeat(Math.ceil(size / line.length)).slice(0, size)}${round}\n`;
}

test("files with equal beginnings and different ends are all readable", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-squashfs-"));
  try {
    const files = new Map<string, string>();
    for (let round = 0; round < ROUNDS; round++)
      for (const size of SIZES) files.set(String(files.size).padStart(4, "0"), contentOf(size, round));
    await mkdir(join(dir, "in"));
    for (const [name, content] of files) await writeFile(join(dir, "in", name), content);
    await run(["tar", "-C", join(dir, "in"), "-cf", join(dir, "in.tar"), ...files.keys()]);
    await writeSquashfs(createReadStream(join(dir, "in.tar")), join(dir, "image"), { maxBytes: 1024 ** 3 });
    await run(["unsquashfs", "-q", "-no-progress", "-d", join(dir, "out"), join(dir, "image")]);
    for (const [name, content] of files) assert.ok((await readFile(join(dir, "out", name), "utf8")) === content, `${name} is another`);
  } finally {
    await rm(dir, { recursive: true });
  }
});
