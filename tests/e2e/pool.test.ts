// VMMs started in advance: a pooled sandbox behaves like any other.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { assertDistinct, clockTolerance, sh, value } from "../helpers/guest.ts";
import { mappingsOf, nextVmm, vmmsOf } from "../helpers/host.ts";
import { until } from "../helpers/until.ts";
import { startVm, type TestVm } from "../helpers/vm.ts";

describe("the pool", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("pool");
  });
  after(async () => vm.close());

  const vmms = (): number[] => vmmsOf(vm.runtime.runDir);

  it("hands out independent machines, and refills itself", async () => {
    const { pool } = vm.runtime;
    await pool.resize(vm.snapshot, 3);
    assert.equal(pool.waiting, 3);
    const waiting = vmms();
    assert.equal(waiting.length, 3);
    const forkedAt = Date.now();
    const children = await vm.forkMany(3);
    assert.deepEqual(
      children.map((child) => child.vm.pid).toSorted((a, b) => a - b),
      waiting,
      "they came from the pool",
    );
    assertDistinct(
      "id",
      children.map(({ id }) => id),
    );
    for (const code of [
      "random.random()",
      "os.urandom(16).hex()",
      "float(numpy.random.rand())",
      "str(uuid.uuid4())",
      "open('/proc/sys/kernel/random/boot_id').read()",
    ]) {
      assertDistinct(code, await Promise.all(children.map(async (child) => value(child, code))));
    }
    for (const child of children) {
      assert.equal(await sh(child, "cat /proc/sys/kernel/hostname"), child.id);
      assert.equal(await sh(child, "cat /etc/machine-id"), child.certificate.identity.machine_id);
      const from = Date.now();
      const guestMs = Number(await value(child, "time.time()")) * 1000;
      const tolerance = clockTolerance(child, forkedAt);
      assert.ok(guestMs >= from - tolerance && guestMs <= Date.now() + tolerance, "its clock is not the host's");
      for (const { permissions } of await mappingsOf(child.vm.pid, child.memoryPath)) assert.match(permissions, /p$/);
      await child.files.write("/var/own", child.id);
    }
    for (const child of children) assert.equal((await child.files.read("/var/own")).toString(), child.id);
    await until(() => pool.waiting === 3);
    await Promise.all(children.map(async (child) => child.kill()));
  });

  it("serves more requests than it holds machines", async () => {
    await vm.runtime.pool.resize(vm.snapshot, 2);
    const children = await vm.forkMany(5);
    assertDistinct("random.random()", await Promise.all(children.map(async (child) => value(child, "random.random()"))));
    await Promise.all(children.map(async (child) => child.kill()));
    await until(() => vm.runtime.pool.waiting === 2);
  });

  it("holds machines that can be branched", async () => {
    const child = await vm.fork();
    await value(child, "from_pool = 1");
    const { snapshot } = await vm.runtime.branch(child, `${vm.tag}-branch`);
    await vm.runtime.pool.resize(snapshot, 1);
    const grandchild = await vm.fork(snapshot);
    assert.equal(await value(grandchild, "from_pool"), 1);
    await Promise.all([child.kill(), grandchild.kill()]);
    await vm.runtime.removeSnapshot(`${vm.tag}-branch`);
    await until(() => vm.runtime.pool.waiting === 2);
  });

  it("replaces a killed machine", async () => {
    const { pool } = vm.runtime;
    await pool.resize(vm.snapshot, 1);
    const [victim] = vmms();
    assert.ok(victim);
    process.kill(victim, "SIGKILL");
    await until(() => {
      // One listing: between two, the victim may end
      const now = vmms();
      return pool.waiting === 1 && now.length === 1 && !now.includes(victim);
    });
  });

  it("does not hand out a machine that was killed, even just before", async () => {
    const { pool } = vm.runtime;
    await pool.resize(vm.snapshot, 1);
    const [victim] = vmms();
    assert.ok(victim);
    process.kill(victim, "SIGKILL");
    const child = await vm.fork();
    assert.notEqual(child.vm.pid, victim);
    assert.equal(await value(child, "1 + 1"), 2);
    await child.kill();
    await until(() => pool.waiting === 1);
  });

  it("of size 0 holds nothing, and forks succeed", async () => {
    const { pool } = vm.runtime;
    await pool.resize(vm.snapshot, 2);
    await pool.resize(vm.snapshot, 0);
    assert.equal(pool.waiting, 0);
    assert.deepEqual(vmms(), []);
    const child = await vm.fork();
    assert.equal(await value(child, "1 + 1"), 2);
    await child.kill();
    assert.deepEqual(vmms(), []);
  });

  it("cancels starting machines when it shrinks", async () => {
    const { pool } = vm.runtime;
    const stop = new AbortController();
    const begun = nextVmm(vm.runtime.runDir, stop.signal);
    const growing = pool.resize(vm.snapshot, 2);
    await begun;
    await Promise.all([growing, pool.resize(vm.snapshot, 0)]);
    assert.equal(pool.waiting, 0);
    assert.deepEqual(vmms(), []);
  });
});
