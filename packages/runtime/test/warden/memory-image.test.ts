// Flat images and trimming. Damaged deltas are refused and have no effect.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  closeSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { test } from "node:test";
import { makeBase, MIB, PAGE, Random, Scratch, startTarget } from "./target.ts";

const RAM = 16 * MIB;

async function makeDelta(scratch: Scratch, base: string): Promise<string> {
  const target = await startTarget(scratch, base, RAM);
  await target.tell("fill 5 20 1");
  await target.tell("touch 100 50 2 1");
  const delta = scratch.path("delta");
  const capture = await scratch.warden.captureBegin({ pid: target.process.pid, ramPath: base, ramBytes: RAM, deltaPath: delta });
  await capture.finish();
  await capture.commit();
  await target.process.kill("SIGKILL");
  return delta;
}

test("no delta: a sparse copy", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, 3 * MIB);
  const file = openSync(base, "r+");
  writeSync(file, Buffer.alloc(MIB), 0, MIB, 8 * MIB);
  writeSync(file, Buffer.from("end"), 0, 3, RAM - 3);
  closeSync(file);
  const out = scratch.path("flat");
  const done = await scratch.warden.flatten({ base, deltas: [], out });
  assert.ok(readFileSync(out).equals(readFileSync(base)));
  if (!done.reflinked) assert.equal(done.bytes, 3 * MIB + PAGE);
  await assert.rejects(scratch.warden.flatten({ base, deltas: [], out }), { code: "BRANCH_FAILED" });
  assert.ok(existsSync(out), "a file that was there stays");
});

test("a flat image shares the base's blocks if the file system supports it", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("mounting a file system needs root");
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, 8 * MIB);
  const delta = await makeDelta(scratch, base);
  const plain = scratch.path("plain");
  await scratch.warden.flatten({ base, deltas: [delta], out: plain });
  const [disk, mounted] = [scratch.path("disk"), scratch.path("btrfs")];
  writeFileSync(disk, "");
  truncateSync(disk, 256 * MIB);
  mkdirSync(mounted);
  try {
    execFileSync("mkfs.btrfs", ["-q", disk], { stdio: "ignore" });
    execFileSync("mount", ["-o", "loop", disk, mounted], { stdio: "ignore" });
  } catch (error) {
    return context.skip(`no btrfs can be made and mounted here: ${String(error)}`);
  }
  try {
    const there = `${mounted}/base`;
    copyFileSync(base, there);
    const done = await scratch.warden.flatten({ base: there, deltas: [delta], out: `${mounted}/flat` });
    assert.equal(done.reflinked, true);
    assert.equal(done.bytes, 70 * PAGE, "only the changed pages were written");
    assert.ok(readFileSync(`${mounted}/flat`).equals(readFileSync(plain)));
    assert.ok(readFileSync(there).equals(readFileSync(base)), "the base is as it was");
  } finally {
    execFileSync("umount", ["-l", mounted]);
  }
});

test("a missing base, and one of another size than the delta's", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, MIB);
  const delta = await makeDelta(scratch, base);
  const out = scratch.path("flat");
  await assert.rejects(scratch.warden.flatten({ base: "/no/such/file", deltas: [], out }), { code: "BRANCH_FAILED" });
  await assert.rejects(scratch.warden.flatten({ base, deltas: ["/no/such/file"], out }), { code: "BRANCH_FAILED" });
  const other = makeBase(scratch, 2 * RAM, MIB);
  await assert.rejects(scratch.warden.flatten({ base: other, deltas: [delta], out }), { code: "SNAPSHOT_INVALID" });
  await assert.rejects(scratch.warden.flatten({ base, deltas: [base], out }), { code: "SNAPSHOT_INVALID" });
  assert.equal(existsSync(out), false);
});

test("200 damaged deltas are refused", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, MIB);
  const good = readFileSync(await makeDelta(scratch, base));
  const indexAt = Number(good.readBigUInt64LE(32));
  const random = new Random(2026);
  const out = scratch.path("flat");
  const damaged = scratch.path("damaged");
  for (let round = 0; round < 200; round++) {
    const bad = Buffer.from(good);
    const inHeader = round % 2 === 0;
    const at = inHeader ? random.below(64) : indexAt + random.below(good.length - indexAt);
    for (let count = 1 + random.below(4); count > 0; count--) {
      const place = Math.min(at + random.below(8), good.length - 1);
      bad[place] = bad.readUInt8(place) ^ (1 + random.below(255));
    }
    if (bad.equals(good)) continue;
    if (round % 5 === 0) sealAgain(bad);
    writeFileSync(damaged, bad);
    const outcome = await scratch.warden.flatten({ base, deltas: [damaged], out }).then(
      () => "applied",
      (error: { code: string }) => error.code,
    );
    assert.equal(outcome, "SNAPSHOT_INVALID", `round ${round}, byte ${at}`);
    assert.equal(existsSync(out), false);
  }
  assert.equal((await scratch.warden.info()).threads > 0, true);
});

/** Recalculates the checksum of a damaged delta, so that only the bounds checks can refuse it */
function sealAgain(delta: Buffer): void {
  const indexAt = delta.readBigUInt64LE(32);
  if (indexAt > BigInt(delta.length) - 16n) return;
  delta.writeBigUInt64LE(BigInt(RAM / PAGE), Number(indexAt));
  let sum = 0xcbf29ce484222325n;
  for (const byte of delta.subarray(Number(indexAt))) sum = BigInt.asUintN(64, (sum ^ BigInt(byte)) * 0x100000001b3n);
  delta.writeBigUInt64LE(sum, 48);
}

test("truncated deltas are refused", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, MIB);
  const good = await makeDelta(scratch, base);
  const size = statSync(good).size;
  const cut = scratch.path("cut");
  for (const length of [0, 1, 55, PAGE - 1, PAGE, PAGE + 1, size - 17, size - 16, size - 1, size + 1, size + PAGE]) {
    copyFileSync(good, cut);
    truncateSync(cut, length);
    await assert.rejects(scratch.warden.flatten({ base, deltas: [good, cut], out: scratch.path("flat") }), { code: "SNAPSHOT_INVALID" });
  }
});

test("trim frees zero pages and changes no byte", async () => {
  await using scratch = await Scratch.make();
  const path = scratch.path("ram");
  const bytes = Buffer.alloc(RAM);
  new Random(1).bytes(40 * PAGE).copy(bytes, 3 * PAGE);
  bytes[5 * MIB - 1] = 1;
  bytes[9 * MIB] = 1;
  writeFileSync(path, bytes);
  const { freed } = await scratch.warden.trim(path);
  assert.equal(freed, RAM - 42 * PAGE);
  assert.ok(readFileSync(path).equals(bytes));
  assert.ok(statSync(path).blocks * 512 <= 64 * PAGE);
  assert.equal((await scratch.warden.trim(path)).freed <= 22 * PAGE, true);
  await assert.rejects(scratch.warden.trim("/no/such/file"), { code: "BRANCH_FAILED" });
});
