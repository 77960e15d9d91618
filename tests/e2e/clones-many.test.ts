// Many clones: at once, and one after another for a long time.
// Runs alone: it fills the machine's memory, and measures the growth of processes.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isAll, rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { vmmsOf, zygotesOf } from "../helpers/host.ts";
import { until } from "../helpers/until.ts";

/** Sandboxes alive at the same time. FORKD_TEST_ALIVE=1000 needs about 8 GiB */
const ALIVE = Number(process.env["FORKD_TEST_ALIVE"] ?? rounds(20, 300));
/** Clones in all. FORKD_TEST_CLONES=20000 takes some minutes on two cores */
const CLONES = Number(process.env["FORKD_TEST_CLONES"] ?? rounds(40, 2000));
const AT_ONCE = 20;
const LIST_MS = 20;
/** Growth that is allowed between the first tenth and the end, in MiB: heaps have some slack */
const GROWTH_MIB = { daemon: 64, warden: 4 };
const TAG = "python";
const IDLE_MS = 3000;
/** Runs of a VMM's threads in that time: most often none; 120 and more with the periodic work of an unchanged kernel */
const IDLE_WAKES = 30;

describe("many clones", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start(["--max-sandboxes", String(Math.max(1000, ALIVE + AT_ONCE))]);
    await daemon.makePython(TAG);
    await daemon.controller.updateSnapshot(TAG, { pool: 1 });
  });
  // a failed test must not leave its sandboxes running
  afterEach(async () => daemon.controller.killSandboxes({ all: true }));
  after(async () => daemon[Symbol.asyncDispose]());

  const folder = (): string => join(daemon.home.run, "daemon");

  it("are alive at once, each answers, and the daemon lists them quickly", async (context) => {
    const { controller } = daemon;
    for (let made = 0; made < ALIVE; made += 100) {
      const sandboxes = await controller.spawnSandboxes(TAG, { n: Math.min(100, ALIVE - made) });
      assert.deepEqual(new Set(sandboxes.map(({ started_by }) => started_by)), new Set(["clone"]));
    }
    const all = await controller.listSandboxes();
    assert.equal(all.length, ALIVE);
    for (let at = 0; at < ALIVE; at += AT_ONCE) {
      const asked = all.slice(at, at + AT_ONCE).map(async ({ id }, index) => controller.evalCode(id, `${at + index} * 2`));
      assert.deepEqual(
        (await Promise.all(asked)).map(({ value }) => value),
        all.slice(at, at + AT_ONCE).map((_, index) => (at + index) * 2),
      );
    }
    const times: number[] = [];
    for (let round = 0; round < 11; round++) {
      const from = performance.now();
      await controller.listSandboxes();
      times.push(performance.now() - from);
    }
    const median = times.toSorted((a, b) => a - b)[5] ?? Infinity;
    context.diagnostic(`${median.toFixed(1)} ms to list ${ALIVE} sandboxes`);
    if (isAll) assert.ok(median <= LIST_MS, `${median} ms to list ${ALIVE} sandboxes`);
    await controller.killSandboxes({ all: true });
    await until(() => vmmsOf(folder()).length === 0);
  });

  it("that are idle do not wake the host", async () => {
    const { controller } = daemon;
    const [sandbox] = await controller.spawnSandboxes(TAG);
    assert.ok(sandbox?.pid);
    await controller.evalCode(sandbox.id, "1");
    const { pid } = sandbox;
    // the first seconds after a fork have more to do
    await until(async () => {
      const before = runsOf(pid);
      await sleep(IDLE_MS);
      return runsOf(pid) - before < IDLE_WAKES;
    });
  });

  it("come and go without growth of the daemon, the warden or the zygote", async () => {
    const { controller } = daemon;
    const seen = new Set<string>();
    let early: Sizes | undefined;
    for (let made = 0; made < CLONES; made += AT_ONCE) {
      const sandboxes = await controller.spawnSandboxes(TAG, { n: AT_ONCE });
      const answers = await Promise.all(sandboxes.map(async ({ id }) => controller.evalCode(id, "[6 * 7, os.urandom(8).hex()]")));
      for (const { value } of answers) {
        const [product, random] = value as [number, string];
        assert.equal(product, 42);
        assert.ok(!seen.has(random), "two clones have the same randomness");
        seen.add(random);
      }
      await Promise.all(sandboxes.map(async ({ id }) => controller.killSandbox(id)));
      if (made >= CLONES / 10) early ??= await sizes();
    }
    const late = await sizes();
    assert.ok(early);
    assert.equal(seen.size, Math.ceil(CLONES / AT_ONCE) * AT_ONCE);
    assert.ok(late.daemonMib - early.daemonMib < GROWTH_MIB.daemon, `daemon: ${early.daemonMib} to ${late.daemonMib} MiB`);
    assert.ok(late.wardenMib - early.wardenMib < GROWTH_MIB.warden, `warden: ${early.wardenMib} to ${late.wardenMib} MiB`);
    assert.deepEqual([late.wardenFiles, late.folders], [early.wardenFiles, early.folders], "descriptors of the warden, folders");
    assert.deepEqual([vmmsOf(folder()).length, zygotesOf(folder()).length], [0, 1]);
    assert.deepEqual(late.zygoteFiles, early.zygoteFiles, "descriptors of the zygote");
  });

  type Sizes = { daemonMib: number; wardenMib: number; wardenFiles: number; zygoteFiles: number; folders: number };

  async function sizes(): Promise<Sizes> {
    // it may be about to be replaced by a new one
    await until(() => zygotesOf(folder()).length === 1);
    const [zygote = 0] = zygotesOf(folder());
    const warden = Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${zygote}/status`, "utf8"))?.[1]);
    return {
      daemonMib: rssMib(daemon.pid),
      wardenMib: rssMib(warden),
      wardenFiles: readdirSync(`/proc/${warden}/fd`).length,
      zygoteFiles: readdirSync(`/proc/${zygote}/fd`).length,
      folders: readdirSync(folder()).length,
    };
  }
});

/** How often the threads of a process have run */
function runsOf(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.reduce((sum, tid) => sum + Number(readFileSync(`/proc/${pid}/task/${tid}/schedstat`, "utf8").split(" ")[2]), 0);
}

function rssMib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}
