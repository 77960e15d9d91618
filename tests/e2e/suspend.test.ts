// Suspended sandboxes: all state is on disk, and resume restores the same identity.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox, type SandboxOptions } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM } from "../helpers/vm.ts";

const TAG = "sleepy";
const WHO = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id";

describe("a suspended sandbox", () => {
  let daemon: TestDaemon;
  const create = async (opts: SandboxOptions = {}): Promise<Sandbox> => Sandbox.create(TAG, { ...opts, controller: daemon.controller });
  const tags = async (): Promise<string[]> => (await daemon.controller.listSnapshots()).map(({ tag }) => tag);
  const stateOf = async (sandbox: Sandbox): Promise<string> => (await sandbox.refresh()).state;
  const out = async (sandbox: Sandbox, script: string): Promise<string> => (await sandbox.exec(script)).stdout;

  before(async () => {
    daemon = await TestDaemon.start();
    await warmSnapshot(daemon.home, TAG, DISK_WARM);
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("continues with its memory, its disk, its processes and its name", async () => {
    const sandbox = await create({ name: "sleeper", env: { WORD: "kept" }, network: { mode: "allow", allow: ["a.test"] } });
    await sandbox.eval("x = 41");
    await sandbox.processes.start("i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done", { tag: "counter" });
    await sandbox.exec("echo written > /srv/file");
    const who = await out(sandbox, WHO);
    const asleep = await sandbox.suspend();
    assert.deepEqual([asleep.state, asleep.pid, asleep.name], ["suspended", null, "sleeper"]);
    assert.deepEqual(await daemon.vmFolders(), []);
    assert.deepEqual(
      (await daemon.controller.listSandboxes()).map(({ id }) => id),
      [sandbox.id],
    );
    await assert.rejects(sandbox.eval("x"), { code: "SANDBOX_SUSPENDED" });
    await assert.rejects(sandbox.branch("no"), { code: "SANDBOX_SUSPENDED" });

    const awake = await sandbox.resume();
    assert.equal(awake.state, "running");
    assert.equal((await sandbox.eval("x + 1")).value, 42);
    assert.equal(await out(sandbox, "cat /srv/file; echo $WORD"), "written\nkept\n");
    assert.equal(await out(sandbox, WHO), who);
    assert.deepEqual(awake.certificate.identity, asleep.certificate.identity);
    const [other] = await sandbox.fork();
    assert.ok(other);
    assert.notEqual(await out(other, "cat /proc/sys/kernel/random/boot_id"), `${awake.certificate.identity.boot_id}\n`);
    await other.kill();
    assert.deepEqual((await sandbox.network.get()).allow, ["a.test"]);
    const count = Number(await out(sandbox, "cat /tmp/count"));
    await until(async () => Number(await out(sandbox, "cat /tmp/count")) > count);
    assert.equal((await sandbox.processes.get("counter")).state, "running");
    assert.ok(await (await Sandbox.connect("sleeper", { controller: daemon.controller })).kill());
    await until(async () => (await tags()).join() === TAG);
  });

  it("is suspended at its time-out, and resumes when it is used", async () => {
    const sandbox = await create({ ttlSecs: 1, onTimeout: "suspend", autoResume: true });
    await until(async () => (await stateOf(sandbox)) === "suspended");
    // longer than this test, or the sandbox would be suspended again
    await sandbox.extend(Math.ceil(patience() / 1000));
    const answers = await Promise.all([sandbox.eval("6 * 7"), sandbox.exec(["echo", "here"]), sandbox.ping()]);
    assert.deepEqual([answers[0].value, answers[1].stdout], [42, "here\n"]);
    const { state, expires_at_unix: expires } = await sandbox.refresh();
    assert.equal(state, "running");
    assert.ok(expires !== null && expires > Date.now() / 1000);
    await sandbox.kill();
  });

  it("survives a killed daemon, suspended or just resumed", async () => {
    const sandbox = await create();
    await sandbox.eval("x = 1");
    await sandbox.suspend();
    await daemon.kill9();
    await daemon.up();
    assert.equal(await stateOf(sandbox), "suspended");
    await sandbox.resume();
    await daemon.kill9();
    await daemon.up();
    assert.equal((await sandbox.eval("x + 1")).value, 2);
    await sandbox.suspend();
    await sandbox.resume();
    assert.equal((await sandbox.eval("x + 2")).value, 3);
    await sandbox.kill();
    await until(async () => (await tags()).join() === TAG);
  });

  it("can be ended, keeps its snapshot from being removed, and changes state by one request at a time", async () => {
    const sandbox = await create();
    const both = await Promise.all([sandbox.suspend(), sandbox.suspend()]);
    assert.deepEqual(
      both.map(({ state }) => state),
      ["suspended", "suspended"],
    );
    await assert.rejects(daemon.controller.deleteSnapshot(TAG), { code: "IN_USE" });
    const turned = await Promise.all([sandbox.resume(), sandbox.resume()]);
    assert.deepEqual(
      turned.map(({ state }) => state),
      ["running", "running"],
    );
    await sandbox.suspend();
    assert.ok(await sandbox.kill());
    await until(async () => (await tags()).join() === TAG);
  });

  it("can be suspended while it is paused", async () => {
    const sandbox = await create();
    await sandbox.pause();
    assert.equal((await sandbox.suspend()).state, "suspended");
    await sandbox.resume();
    assert.equal((await sandbox.eval("1 + 1")).value, 2);
    await sandbox.kill();
  });
});
