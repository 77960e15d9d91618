// A power cut at every write of the manager: promised data is present, and other data is complete or refused.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, realpath, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Disk, readRecord, recorderIn } from "../../../../tests/helpers/power-cut.ts";
import { replay } from "../../../../tests/helpers/promises.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";

const run = promisify(execFile);
const SCENARIO = resolve(import.meta.dirname, "..", "fixtures", "power-cut-scenario.ts");

test("acknowledged state survives a power cut at any point", async (t) => {
  const dir = await realpath(await tempDir(t));
  const world = join(dir, "world");
  const home = join(world, "home");
  await mkdir(home, { recursive: true, mode: 0o700 });
  const disk = await Disk.of(home);
  const { env, log } = await recorderIn(dir, home);
  const args = ["--disable-warning=ExperimentalWarning", SCENARIO, world, log];
  await run(process.execPath, args, { env: { ...process.env, NODE_TEST_CONTEXT: "", ...env } });
  const entries = await readRecord(log);
  const { cuts, promised } = await replay({ disk, entries, dir });
  t.diagnostic(`${entries.length} changes, ${promised} promises, ${cuts} power cuts`);
  assert.ok(promised > 50 && cuts > 100, `${promised} promises, ${cuts} power cuts`);
});

test("a new file with the inode of a removed one is not that file", async (t) => {
  const dir = await tempDir(t);
  const [home, left] = [join(dir, "home"), join(dir, "left")];
  await mkdir(join(home, "snapshot"), { recursive: true });
  await writeFile(join(home, "old"), "0123456789");
  const [root, snapshot, ino] = await Promise.all(["", "snapshot", "old"].map(async (name) => (await stat(join(home, name))).ino));
  assert.ok(root && snapshot && ino);
  const disk = await Disk.of(home);
  disk.apply({ op: "unlink", dir: root, name: "old" });
  disk.apply({ op: "sync", ino, number: "1", size: 4096 });
  disk.apply({ op: "synced", number: "1" });
  disk.apply({ op: "sync", ino: snapshot, number: "2", size: -1, list: [["memory.ram", ino, 4096]] });
  disk.apply({ op: "synced", number: "2" });
  await disk.write(left, "nothing");
  const sizes = ["old", "snapshot/memory.ram"].map(async (name) => (await stat(join(left, name))).size);
  assert.deepEqual(await Promise.all(sizes), [10, 4096]);
});
