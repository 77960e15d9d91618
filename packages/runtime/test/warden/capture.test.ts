// Captures of a process's private pages, compared with its memory byte for byte.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Capture } from "../../src/warden/warden.ts";
import { WardenFault } from "../../src/warden/channel.ts";
import { makeBase, MIB, PAGE, Scratch, startTarget, type Target } from "./target.ts";

const RAM = 32 * MIB;

async function begin(scratch: Scratch, target: Target, bytes = RAM): Promise<{ capture: Capture; delta: string }> {
  const delta = scratch.path("delta");
  const capture = await scratch.warden.captureBegin({ pid: target.process.pid, ramPath: target.base, ramBytes: bytes, deltaPath: delta });
  return { capture, delta };
}

async function flattened(scratch: Scratch, base: string, deltas: string[]): Promise<string> {
  const out = scratch.path("flat");
  await scratch.warden.flatten({ base, deltas, out });
  assert.equal(statSync(out).mode & 0o777, 0o600);
  return out;
}

async function assertSame(scratch: Scratch, target: Target, deltas: string[], base = target.base): Promise<string> {
  const dump = scratch.path("dump");
  await target.tell(`dump ${dump}`);
  const flat = await flattened(scratch, base, deltas);
  assert.ok(readFileSync(flat).equals(readFileSync(dump)), "the image differs from the memory");
  return flat;
}

function cause(code: string): (error: Error) => boolean {
  return (error) => error.cause instanceof WardenFault && error.cause.code === code;
}

test("the delta has exactly the private pages, and changing ones are copied again", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 4 * MIB), RAM);
  await target.tell("read 0 1000");
  await target.tell("fill 3 50 1");
  await target.tell("fill 4000 1 2");
  await target.tell("fill 8191 1 3");
  const { capture, delta } = await begin(scratch, target);
  assert.equal(capture.pages, 52);
  await target.tell("fill 10 2 4");
  await target.tell("zero 20 1");
  await target.tell("fill 100 5 5");
  const finished = await capture.finish();
  assert.deepEqual([finished.pages, finished.recopied], [57, 8]);
  await target.tell("split 0 10");
  const dump = scratch.path("dump");
  await target.tell(`dump ${dump}`);
  // changes after the pause are not captured
  await target.tell("fill 3 60 6");
  const { bytes, pages } = await capture.commit();
  assert.deepEqual([pages, statSync(delta).size], [57, bytes]);
  const flat = await flattened(scratch, target.base, [delta]);
  assert.ok(readFileSync(flat).equals(readFileSync(dump)));
});

test("nothing private, and nothing changed", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("read 0 8192");
  const { capture, delta } = await begin(scratch, target);
  assert.equal(capture.pages, 0);
  assert.equal((await capture.finish()).pages, 0);
  assert.equal((await capture.commit()).pages, 0);
  await assertSame(scratch, target, [delta]);
});

test("pages that are equal to the base again leave the delta", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 8 * MIB), RAM);
  await target.tell("fill 0 2000 1");
  await target.tell("fill 5000 10 2");
  const { capture, delta } = await begin(scratch, target);
  await target.tell("drop 0 1");
  await target.tell("drop 500 700");
  await target.tell("drop 5005 10");
  await target.tell("fill 600 3 3");
  const finished = await capture.finish();
  assert.deepEqual([finished.pages, finished.recopied], [2000 - 701 + 3 + 5, 3]);
  assert.equal((await capture.commit()).pages, finished.pages);
  await assertSame(scratch, target, [delta]);
});

test("a mapping in many areas, and more changes than the reserved space", async () => {
  await using scratch = await Scratch.make();
  const bytes = 128 * MIB;
  const target = await startTarget(scratch, makeBase(scratch, bytes, 8 * MIB), bytes);
  for (const at of [0, 7, 100, 5000, 32767]) await target.tell(`split ${at} 1`);
  await target.tell("touch 0 3000 2 1");
  const { capture, delta } = await begin(scratch, target, bytes);
  assert.equal(capture.pages, 3000);
  await target.tell("touch 0 2000 2 2");
  await target.tell("touch 6000 12000 2 3");
  const finished = await capture.finish();
  assert.deepEqual([finished.pages, finished.recopied], [15000, 14000]);
  await capture.commit();
  await assertSame(scratch, target, [delta]);
});

test("many single pages: the scan's answer has several parts", async () => {
  await using scratch = await Scratch.make();
  for (const count of [1023, 1024, 1025, 2048, 25 * 1024]) {
    const bytes = 512 * MIB;
    const target = await startTarget(scratch, makeBase(scratch, bytes, 0), bytes);
    await target.tell(`touch 0 ${count} 3 9`);
    const { capture } = await begin(scratch, target, bytes);
    assert.equal(capture.pages, count);
    const finished = await capture.finish();
    assert.deepEqual([finished.pages, finished.recopied], [count, 0]);
    assert.equal((await capture.commit()).pages, count);
    await target.process.kill("SIGKILL");
  }
});

test("a process that writes continuously up to the pause", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 8 * MIB), RAM);
  for (let round = 0; round < 5; round++) {
    await target.tell("churn 1000 3000");
    const { capture, delta } = await begin(scratch, target);
    await target.tell("halt");
    const finished = await capture.finish();
    assert.equal((await capture.commit()).pages, finished.pages);
    await assertSame(scratch, target, [delta]);
  }
});

test("a chain of three, each a fork of the previous one", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, 8 * MIB);
  const deltas: string[] = [];
  let image = base;
  for (let depth = 0; depth < 3; depth++) {
    const target = await startTarget(scratch, image, RAM);
    await target.tell(`fill ${depth * 500} 900 ${depth + 1}`);
    await target.tell(`zero ${depth * 300} 40`);
    const { capture, delta } = await begin(scratch, target);
    await target.tell(`fill ${depth * 700} 3 9`);
    await capture.finish();
    await capture.commit();
    deltas.push(delta);
    image = await assertSame(scratch, target, [delta]);
    // also with the whole chain from the first base
    await assertSame(scratch, target, deltas, base);
    await target.process.kill("SIGKILL");
  }
});

test("4 GiB of sparse RAM", async () => {
  await using scratch = await Scratch.make();
  const bytes = 4096 * MIB;
  const last = bytes / PAGE - 1;
  const target = await startTarget(scratch, makeBase(scratch, bytes, 2 * MIB), bytes);
  await target.tell(`fill ${last} 1 1`);
  await target.tell("fill 700000 2 2");
  const { capture, delta } = await begin(scratch, target, bytes);
  await target.tell(`touch ${last} 1 1 5`);
  assert.equal((await capture.finish()).recopied, 1);
  await capture.commit();
  const flat = await flattened(scratch, target.base, [delta]);
  assert.equal(statSync(flat).size, bytes);
  assert.ok(statSync(flat).blocks * 512 < 4 * MIB);
  assert.ok(pages(flat, 0, 512).equals(pages(target.base, 0, 512)));
  // slots are in page order, after the header's page
  assert.ok(pages(flat, 700000, 2).equals(pages(delta, 1, 2)));
  assert.ok(pages(flat, last, 1).equals(pages(delta, 3, 1)));
});

function pages(path: string, first: number, count: number): Buffer {
  const buffer = Buffer.alloc(count * PAGE);
  const file = openSync(path, "r");
  readSync(file, buffer, 0, buffer.length, first * PAGE);
  closeSync(file);
  return buffer;
}

test("several concurrent captures, of one process and of others", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, RAM, 4 * MIB);
  const targets = await Promise.all([1, 2, 3].map(() => startTarget(scratch, base, RAM)));
  await Promise.all(targets.map((target, at) => target.tell(`fill ${at} 1500 ${at}`)));
  await Promise.all(
    [...targets, ...targets].map(async (target) => {
      const { capture, delta } = await begin(scratch, target);
      await capture.finish();
      await capture.commit();
      await assertSame(scratch, target, [delta]);
    }),
  );
});

test("steps out of order are refused, and abort removes the file", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 0 100 1");
  const { capture, delta } = await begin(scratch, target);
  await assert.rejects(capture.commit(), cause("EINVAL"));
  await capture.finish();
  await assert.rejects(capture.finish(), cause("EINVAL"));
  await capture.abort();
  await capture.abort();
  assert.equal(existsSync(delta), false);
  await assert.rejects(capture.commit(), cause("ESRCH"));

  const again = await begin(scratch, target);
  await assert.rejects(
    scratch.warden.captureBegin({ pid: target.process.pid, ramPath: target.base, ramBytes: RAM, deltaPath: again.delta }),
    cause("EEXIST"),
  );
  await again.capture.finish();
  await again.capture.commit();
  await again.capture.abort();
  assert.equal(existsSync(again.delta), true);
});

test("RAM that differs from the process's mapping", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 0 1 1");
  const ask = { pid: target.process.pid, ramPath: target.base, ramBytes: RAM, deltaPath: scratch.path("delta") };
  await assert.rejects(scratch.warden.captureBegin({ ...ask, ramBytes: 2 * RAM }), cause("EINVAL"));
  await assert.rejects(scratch.warden.captureBegin({ ...ask, ramBytes: RAM - 1 }), cause("EINVAL"));
  await assert.rejects(scratch.warden.captureBegin({ ...ask, ramPath: makeBase(scratch, RAM, MIB) }), cause("ENOENT"));
  assert.equal(existsSync(ask.deltaPath), false);
});

test("a process that is killed in the middle", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, 256 * MIB, 4 * MIB);
  for (const after of ["begin", "during begin", "finish"]) {
    const target = await startTarget(scratch, base, 256 * MIB);
    await target.tell("touch 0 30000 2 1");
    if (after === "during begin") {
      const delta = scratch.path("delta");
      const asked = scratch.warden.captureBegin({ pid: target.process.pid, ramPath: base, ramBytes: 256 * MIB, deltaPath: delta });
      const outcome = asked.then(
        (capture) => capture.finish().then(String, () => "failed"),
        () => "failed",
      );
      process.kill(target.process.pid, "SIGKILL");
      await target.process.exited;
      assert.equal(await outcome, "failed");
      assert.equal(existsSync(delta), false);
      continue;
    }
    const { capture, delta } = await begin(scratch, target, 256 * MIB);
    if (after === "finish") await capture.finish();
    await target.process.kill("SIGKILL");
    await target.process.exited;
    if (after === "finish") {
      // finish() has copied all pages, so commit() does not need the process
      assert.equal((await capture.commit()).pages, 30000);
    } else {
      await assert.rejects(capture.finish(), cause("ESRCH"));
      assert.equal(existsSync(delta), false);
    }
  }
});

test("a full disk", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("mounting a small file system needs root");
  await using scratch = await Scratch.make();
  const small = join(scratch.dir, "small");
  mkdirSync(small);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=4m", "forkd-test", small]);
  try {
    const target = await startTarget(scratch, makeBase(scratch, RAM, 8 * MIB), RAM);
    const ask = { pid: target.process.pid, ramPath: target.base, ramBytes: RAM, deltaPath: join(small, "delta") };
    await target.tell("touch 0 2000 1 1");
    await assert.rejects(scratch.warden.captureBegin(ask), { code: "NO_SPACE" });
    assert.equal(existsSync(ask.deltaPath), false);

    await target.tell("drop 0 8192");
    await target.tell("touch 0 500 1 1");
    const capture = await scratch.warden.captureBegin(ask);
    await target.tell("touch 3000 2000 1 1");
    assert.equal((await capture.finish()).pages, 2500);
    await assert.rejects(capture.commit(), { code: "NO_SPACE" });
    assert.equal(existsSync(ask.deltaPath), false);

    await assert.rejects(scratch.warden.flatten({ base: target.base, deltas: [], out: join(small, "flat") }), { code: "NO_SPACE" });
    assert.equal(existsSync(join(small, "flat")), false);
  } finally {
    execFileSync("umount", ["-l", small]);
  }
});
