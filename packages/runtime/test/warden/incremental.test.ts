// Incremental captures of one process: each has only the changed pages, and the chain gives the memory at that moment.

import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { isAll } from "../../../../tests/helpers/all.ts";
import { makeBase, MIB, PAGE, Random, Scratch, startTarget, type Target } from "./target.ts";

const RAM = 16 * MIB;
const PAGES = RAM / PAGE;

type Taken = { delta: string; pages: number; stored: number };

/** A capture after the given ones; `between` runs after the first copy and before the pause */
async function take(scratch: Scratch, target: Target, earlier: readonly string[], between?: () => Promise<void>): Promise<Taken> {
  const delta = scratch.path("delta");
  const request = { pid: target.process.pid, ramPath: target.base, ramBytes: RAM, deltaPath: delta, earlier };
  const capture = await scratch.warden.captureBegin(request);
  await between?.();
  await capture.finish();
  const { pages } = await capture.commit();
  return { delta, pages, stored: storedPages(delta) };
}

function storedPages(delta: string): number {
  return Number(readFileSync(delta).readBigUInt64LE(24));
}

async function assertSame(scratch: Scratch, target: Target, deltas: readonly string[], what: string): Promise<void> {
  const [dump, out] = [scratch.path("dump"), scratch.path("flat")];
  await target.tell(`dump ${dump}`);
  await scratch.warden.flatten({ base: target.base, deltas, out });
  assert.ok(readFileSync(out).equals(readFileSync(dump)), `${what}: the image differs from the memory`);
}

test("a capture after another one has only the changed pages", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 4 * MIB), RAM);
  await target.tell("fill 0 2000 1");
  const first = await take(scratch, target, []);
  assert.deepEqual([first.pages, first.stored], [2000, 2000]);
  await target.tell("fill 100 50 2");
  await target.tell("fill 3000 10 3");
  const second = await take(scratch, target, [first.delta]);
  assert.deepEqual([second.pages, second.stored], [2010, 60]);
  assert.ok(statSync(second.delta).size < 70 * PAGE);
  await assertSame(scratch, target, [first.delta, second.delta], "second");
  const third = await take(scratch, target, [first.delta, second.delta]);
  assert.deepEqual([third.pages, third.stored], [2010, 0]);
  await assertSame(scratch, target, [first.delta, second.delta, third.delta], "third");
});

test("a page that is rewritten with the same content is not stored", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 0 100 1");
  const first = await take(scratch, target, []);
  await target.tell("fill 0 100 2");
  await target.tell("fill 0 100 1");
  const second = await take(scratch, target, [first.delta]);
  assert.equal(second.stored, 0);
});

test("pages that are equal to the base again have the base's content, and are stored once", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 2 * MIB), RAM);
  await target.tell("fill 0 1000 1");
  const first = await take(scratch, target, []);
  // before the first copy, and between it and the pause; the base has data up to page 512
  await target.tell("drop 0 10");
  await target.tell("drop 600 10");
  const second = await take(scratch, target, [first.delta], async () => {
    await target.tell("drop 100 10");
    await target.tell("drop 700 10");
    await target.tell("fill 605 2 4");
  });
  assert.equal(second.stored, 40);
  await assertSame(scratch, target, [first.delta, second.delta], "second");
  const third = await take(scratch, target, [first.delta, second.delta]);
  assert.equal(third.stored, 0);
  await assertSame(scratch, target, [first.delta, second.delta, third.delta], "third");
});

test("a page of zeroes replaces an earlier one", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 0 300 1");
  const first = await take(scratch, target, []);
  await target.tell("zero 0 20");
  const second = await take(scratch, target, [first.delta], async () => target.tell("zero 200 20"));
  assert.equal(second.stored, 40);
  await assertSame(scratch, target, [first.delta, second.delta], "second");
});

test("each of many captures in a row matches the memory of its moment", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const random = new Random(seed);
  await using scratch = await Scratch.make();
  for (let round = 0; round < (isAll ? 20 : 3); round++) {
    const target = await startTarget(scratch, makeBase(scratch, RAM, (1 + random.below(8)) * MIB), RAM);
    // answered when the RAM is mapped
    await target.tell("read 0 1");
    let chain: string[] = [];
    const step = async (): Promise<void> => {
      for (let left = random.below(8); left > 0; left--) {
        const first = random.below(PAGES);
        const count = 1 + random.below(Math.min(PAGES - first, random.below(4) === 0 ? 1500 : 30));
        // few seeds, so that a page often gets an earlier content again
        await target.tell(
          [`fill ${first} ${count} ${random.below(3)}`, `drop ${first} ${count}`, `zero ${first} ${count}`][random.below(3)] ?? "",
        );
      }
    };
    for (let branch = 0; branch < 8; branch++) {
      await step();
      const { delta } = await take(scratch, target, chain, step);
      chain = [...chain, delta];
      await assertSame(scratch, target, chain, `seed ${seed}, round ${round}, branch ${branch}`);
      // as when the daemon starts a new chain
      if (random.below(6) === 0) chain = [];
    }
    await target.process.kill("SIGKILL");
  }
});

test("an earlier delta of another size, an invalid one, or a missing one, is refused", async () => {
  await using scratch = await Scratch.make();
  const larger = await startTarget(scratch, makeBase(scratch, 2 * RAM, MIB), 2 * RAM);
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await larger.tell("fill 0 10 1");
  const deltaPath = scratch.path("larger");
  await scratch.warden.capture({ pid: larger.process.pid, ramPath: larger.base, ramBytes: 2 * RAM, deltaPath });
  for (const earlier of [deltaPath, target.base]) await assert.rejects(take(scratch, target, [earlier]), { code: "SNAPSHOT_INVALID" });
  await assert.rejects(take(scratch, target, [scratch.path("missing")]), { code: "BRANCH_FAILED", message: /missing/ });
});

test("a capture in one step, above deltas of the memory with which the process began, counts only its own pages", async () => {
  await using scratch = await Scratch.make();
  const target = await startTarget(scratch, makeBase(scratch, RAM, 2 * MIB), RAM);
  const [one, two] = [scratch.path("one"), scratch.path("two")];
  await target.tell("fill 0 1000 1");
  const below = await take(scratch, target, []);
  await target.tell("fill 100 50 2");
  await target.tell("drop 200 10");
  const spec = { pid: target.process.pid, ramPath: target.base, ramBytes: RAM, below: [below.delta] };
  const first = await scratch.warden.capture({ ...spec, deltaPath: one });
  assert.deepEqual([first.pages, storedPages(one), first.privatePages], [60, 60, 990]);
  await assertSame(scratch, target, [below.delta, one], "first");
  await target.tell("fill 140 20 3");
  const second = await scratch.warden.capture({ ...spec, deltaPath: two, earlier: [one] });
  assert.deepEqual([second.pages, storedPages(two)], [70, 20]);
  await assertSame(scratch, target, [below.delta, one, two], "second");
});
