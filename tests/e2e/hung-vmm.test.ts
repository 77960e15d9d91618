// A VMM that hangs, in each phase of its life: it blocks only its own sandbox, not others or the daemon.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { nextVmm, vmmsOf } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM } from "../helpers/vm.ts";

const TAG = "hung";
/** More than the limit of concurrent branches */
const BRANCHES = 6;

describe("a VMM that does not answer", () => {
  let daemon: TestDaemon;
  let sibling: Sandbox;
  const create = async (): Promise<Sandbox> => Sandbox.create(TAG, { controller: daemon.controller });
  const connect = async (id: string): Promise<Sandbox> => Sandbox.connect(id, { controller: daemon.controller });
  const stateOf = async (sandbox: Sandbox): Promise<string> => (await sandbox.refresh()).state;

  before(async () => {
    daemon = await TestDaemon.start();
    await warmSnapshot(daemon.home, TAG, DISK_WARM);
    sibling = await create();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  async function pidOf(sandbox: Sandbox): Promise<number> {
    const { pid } = await daemon.controller.getSandbox(sandbox.id);
    assert.ok(pid);
    return pid;
  }

  /** Stops the VMM during the work, and checks that the sibling is served */
  async function whileHung<V>(sandbox: Sandbox, work: () => Promise<V>): Promise<V> {
    const pid = await pidOf(sandbox);
    process.kill(pid, "SIGSTOP");
    try {
      const working = work();
      assert.equal((await sibling.eval("6 * 7")).value, 42);
      return await working;
    } finally {
      process.kill(pid, "SIGCONT");
    }
  }

  it("fails its branches, also with a disk, and does not use up the branch slots", async () => {
    const sandbox = await create();
    await sandbox.eval("kept = 42");
    await sandbox.branch("before");
    await whileHung(sandbox, async () => {
      for (let at = 0; at < BRANCHES; at++) await assert.rejects(sandbox.branch("never"), { code: "BRANCH_FAILED" });
      await sibling.branch("other");
    });
    assert.equal((await sandbox.eval("kept")).value, 42);
    await sandbox.branch("later");
    const child = await Sandbox.create("later", { controller: daemon.controller });
    assert.equal((await child.eval("kept")).value, 42);
    for (const one of [child, sandbox]) await one.kill();
    for (const tag of ["before", "later", "other"]) await daemon.controller.deleteSnapshot(tag, { force: true });
  });

  it("cannot be paused or suspended until it answers again", async () => {
    const sandbox = await create();
    await sandbox.eval("kept = 42");
    await whileHung(sandbox, async () => {
      await assert.rejects(sandbox.pause(), { code: "VMM_FAILED" });
      await assert.rejects(sandbox.suspend(), { code: "BRANCH_FAILED" });
    });
    assert.equal(await stateOf(sandbox), "running");
    assert.equal((await sandbox.eval("kept")).value, 42);
    await sandbox.pause();
    await sandbox.resume();
    await sandbox.suspend();
    await sandbox.resume();
    assert.equal((await sandbox.eval("kept")).value, 42);
    await sandbox.kill();
  });

  /** Stops the next VMM at its start, and continues it after the sibling and a new sandbox were served */
  async function whileStarting<V>(start: () => Promise<V>): Promise<V> {
    const found = nextVmm(join(daemon.home.run, "daemon"), AbortSignal.timeout(patience()));
    const started = start();
    const pid = await found;
    process.kill(pid, "SIGSTOP");
    try {
      assert.equal((await sibling.eval("6 * 7")).value, 42);
      const other = await create();
      assert.equal((await other.eval("6 * 7")).value, 42);
      await other.kill();
    } finally {
      process.kill(pid, "SIGCONT");
    }
    return started;
  }

  it("while it starts delays no other VM, and is used when it answers", async () => {
    const sandbox = await whileStarting(create);
    await sandbox.eval("kept = 42");
    await sandbox.suspend();
    await whileStarting(async () => sandbox.resume());
    assert.equal((await sandbox.eval("kept")).value, 42);
    await sandbox.kill();
  });

  it("does not delay the start of a daemon, and is adopted when it answers again", async (t) => {
    const sandbox = await create();
    await sandbox.eval("kept = 42");
    const quiet = await restart(async () => daemon.kill9());
    const pid = await pidOf(sandbox);
    process.kill(pid, "SIGSTOP");
    const hung = await restart(async () => daemon.kill9());
    t.diagnostic(`the daemon started in ${Math.round(quiet)} ms, and in ${Math.round(hung)} ms with a VMM that does not answer`);
    assert.ok(hung < quiet + patience(0.5), `it started in ${hung} ms, and without that VMM in ${quiet} ms`);
    assert.equal((await (await connect(sibling.id)).eval("6 * 7")).value, 42);
    assert.equal((await daemon.controller.getSandbox(sandbox.id)).state, "running");
    const waiting = sandbox.eval("kept");
    process.kill(pid, "SIGCONT");
    assert.equal((await waiting).value, 42);
    await sandbox.branch("adopted");
    await daemon.controller.deleteSnapshot("adopted", { force: true });
    await sandbox.kill();
  });

  it("does not delay the stop of a daemon, even before adoption, and is lost in the end", async () => {
    const sandbox = await create();
    const pid = await pidOf(sandbox);
    process.kill(pid, "SIGSTOP");
    await restart(async () => daemon.down());
    const stopping = performance.now();
    await daemon.down();
    const took = performance.now() - stopping;
    assert.ok(took < patience(0.5), `it stopped in ${took} ms`);
    await daemon.up();
    assert.equal((await (await connect(sibling.id)).eval("6 * 7")).value, 42);
    await until(async () => (await stateOf(sandbox)) === "lost");
    const { reason } = await daemon.controller.getSandbox(sandbox.id);
    assert.match(reason ?? "", /did not answer/);
    assert.equal((await sibling.eval("6 * 7")).value, 42);
    await sandbox.kill();
  });

  it("can be ended", async () => {
    const sandbox = await create();
    process.kill(await pidOf(sandbox), "SIGSTOP");
    await sandbox.kill();
    assert.equal((await sibling.eval("6 * 7")).value, 42);
  });

  it("of the pool is replaced", async () => {
    const tag = "pooled";
    const source = await create();
    // its processes are not held, so it has a pool in place of a zygote when the copy of its source has ended
    await source.branch(tag);
    await source.kill();
    await restart(async () => daemon.down());
    const before = vmms();
    await daemon.controller.updateSnapshot(tag, { pool: 1 });
    const isWaiting = async (): Promise<boolean> => (await daemon.controller.status()).pool_waiting === 1;
    await until(isWaiting);
    const [waiting] = vmms().filter((pid) => !before.includes(pid));
    assert.ok(waiting);
    process.kill(waiting, "SIGSTOP");
    const sandbox = await Sandbox.create(tag, { controller: daemon.controller });
    assert.notEqual(await pidOf(sandbox), waiting);
    assert.equal((await sandbox.eval("6 * 7")).value, 42);
    await daemon.controller.updateSnapshot(tag, { pool: 0 });
    await sandbox.kill();
    await daemon.controller.deleteSnapshot(tag);
  });

  const vmms = (): number[] => vmmsOf(join(daemon.home.run, "daemon"));

  /** Ends the daemon and starts it again; returns the duration of the start */
  async function restart(end: () => Promise<void>): Promise<number> {
    await end();
    const began = performance.now();
    await daemon.up();
    return performance.now() - began;
  }
});
