// Disks through the daemon: listed, limited, kept by workspaces, and intact after a crash of the daemon.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { disksOfVms, namesIn } from "../helpers/host.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { DISK_MIB, DISK_WARM } from "../helpers/vm.ts";

const MIB = 1024 * 1024;
const FRESH = "sync; echo 3 > /proc/sys/vm/drop_caches";
const TAG = "disk";
/** When the daemon is killed, as a fraction of the duration of a branch */
const CUTS = [0.2, 0.4, 0.6, 0.8, 1, 0, 0.1, 0.3, 0.5, 0.9];

describe("a daemon's sandbox with a disk", () => {
  let daemon: TestDaemon;
  const connect = async (id: string): Promise<Sandbox> => Sandbox.connect(id, { controller: daemon.controller });
  const fork = async (tag: string): Promise<Sandbox> => {
    const [info] = await daemon.controller.spawnSandboxes(tag);
    assert.ok(info);
    return connect(info.id);
  };
  const sh = async (sandbox: Sandbox, script: string): Promise<string> => {
    const { exit_code: code, stdout, stderr } = await sandbox.exec(["sh", "-c", script]);
    assert.equal(code, 0, `${script}: ${stderr}`);
    return stdout.trim();
  };

  before(async () => {
    daemon = await TestDaemon.start();
    await warmSnapshot(daemon.home, TAG, DISK_WARM);
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("reports its size and its use of the host", async () => {
    const sandbox = await fork(TAG);
    const info = await daemon.controller.getSandbox(sandbox.id);
    assert.equal(info.disk_mib, DISK_MIB);
    assert.equal(info.certificate.disk, "private-layer");
    const before = await daemon.controller.sandboxStats(sandbox.id);
    await sh(sandbox, `head -c ${5 * MIB} /dev/urandom > /data/five; ${FRESH}`);
    const now = await daemon.controller.sandboxStats(sandbox.id);
    assert.ok((now.disk_bytes ?? 0) - (before.disk_bytes ?? 0) > 5 * MIB);

    const branch = await sandbox.branch("shown");
    assert.equal(branch.disk_mib, DISK_MIB);
    const details = await daemon.controller.snapshotInfo("shown");
    assert.equal(details.disk_layers, 2);
    assert.ok(details.disk_physical_bytes > 5 * MIB);
    assert.equal(details.disk_own_bytes, 0, "the source still has its layer too");
    assert.ok((await daemon.cli(["snapshot", "info", "shown"])).stdout.includes("2 layers"));
    await sandbox.kill();
    assert.ok((await daemon.controller.snapshotInfo("shown")).disk_own_bytes > 5 * MIB);

    await daemon.controller.deleteSnapshot("shown", { force: true });
    assert.deepEqual(await daemon.controller.listSnapshots({}).then((list) => list.map(({ tag }) => tag)), [TAG]);
  });

  it("keeps the layers that it needs, of any origin, and no longer than it needs them", async () => {
    const source = await fork(TAG);
    await sh(source, `head -c ${6 * MIB} /dev/urandom > /data/six; ${FRESH}`);
    const [child] = await source.fork(1);
    assert.ok(child);
    await source.kill();
    const { removed } = await daemon.controller.gc({ dryRun: true });
    assert.deepEqual(
      removed.filter(({ kind }) => kind === "snapshot"),
      [],
      "a child runs from it",
    );
    assert.equal(await sh(child, `${FRESH}; wc -c < /data/six`), String(6 * MIB));
    await child.kill();
    await daemon.controller.gc();
    assert.deepEqual(await namesIn(`${daemon.home.snapshots}/tags`), [TAG]);
    assert.deepEqual(await disksOfVms(daemon.home), []);
  });

  it("is suspended and resumed with its disk", async () => {
    const { controller } = daemon;
    const { live_sandbox_id: id } = await controller.createWorkspace("desk", TAG);
    assert.ok(id);
    const first = await connect(id);
    await sh(first, `echo on disk > /data/desk; ${FRESH}; echo in memory > /tmp/desk; echo late >> /data/desk`);
    for (let round = 1; round <= 2; round++) {
      await controller.suspendWorkspace("desk");
      assert.deepEqual(await disksOfVms(daemon.home), [], "while it sleeps no VM has a disk");
      const resumed = await controller.resumeWorkspace("desk");
      assert.ok(resumed.live_sandbox_id);
      const sandbox = await connect(resumed.live_sandbox_id);
      const rounds = round === 1 ? "" : "\nround 1";
      assert.equal(await sh(sandbox, `${FRESH}; cat /tmp/desk /data/desk`), `in memory\non disk\nlate${rounds}`);
      await sh(sandbox, `echo round ${round} >> /data/desk`);
    }
    await controller.deleteWorkspace("desk");
  });

  it("is adopted, running and paused, and can be branched again", async () => {
    const [one, paused] = [await fork(TAG), await fork(TAG)];
    await sh(one, `echo one > /data/one; ${FRESH}; echo late >> /data/one; head -c ${20 * MIB} /dev/urandom > /tmp/big`);
    const early = await daemon.controller.branchSandbox(one.id, { tag: "early" });
    await sh(one, "echo two > /data/two");
    await sh(paused, "echo asleep > /data/one");
    await daemon.controller.pauseSandbox(paused.id);
    await daemon.kill9();
    await daemon.up();
    const again = await connect(one.id);
    assert.equal(await sh(again, `${FRESH}; cat /data/kept /data/one /data/two`), "frozen\none\nlate\ntwo");
    const [tip] = await again.fork(1);
    assert.ok(tip);
    assert.equal(await sh(tip, `${FRESH}; cat /data/kept /data/one /data/two`), "frozen\none\nlate\ntwo");
    await daemon.controller.resumeSandbox(paused.id);
    const [other] = await (await connect(paused.id)).fork(1);
    assert.ok(other);
    assert.equal(await sh(other, `${FRESH}; cat /data/one`), "asleep");
    const late = await daemon.controller.branchSandbox(one.id, { tag: "late" });
    assert.ok((late.delta_bytes ?? 0) < (early.delta_bytes ?? 0) - 15 * MIB, "only what changed since the branch before the restart");
    await daemon.controller.deleteSnapshot("early");
    const grandchild = await fork("late");
    assert.equal(await sh(grandchild, "cat /data/one /data/two; wc -c < /tmp/big"), `one\nlate\ntwo\n${20 * MIB}`);
    await daemon.controller.killSandboxes({ all: true });
    await daemon.controller.deleteSnapshot("late");
    assert.deepEqual(await disksOfVms(daemon.home), []);
  });

  it("is intact when the daemon is killed in the middle of a branch, and no incomplete file remains", async () => {
    const { id } = await fork(TAG);
    await sh(await connect(id), "echo 0 > /data/log");
    const from = performance.now();
    await daemon.controller.branchSandbox(id, { tag: "whole" });
    const wholeMs = performance.now() - from;
    for (const [round, part] of CUTS.slice(0, rounds(5, CUTS.length)).entries()) {
      const sandbox = await connect(id);
      // data to be written during the pause, and data that is only in memory
      await sh(sandbox, `head -c ${2 * MIB} /dev/urandom > /data/noise; echo ${round} >> /data/log`);
      const cut = daemon.controller.branchSandbox(id, { tag: `cut-${round}` });
      cut.catch(() => undefined); // the daemon may be killed first
      await sleep(part * wholeMs);
      await daemon.kill9();
      await daemon.up();
      assert.deepEqual(await namesIn(daemon.home.staging), []);
      const survivor = await connect(id);
      const log = ["0", ...Array.from({ length: round + 1 }, (_, at) => String(at))].join("\n");
      assert.equal(await sh(survivor, `${FRESH}; cat /data/log`), log, `after ${part} of a branch`);
      const [child] = await survivor.fork(1);
      assert.ok(child);
      assert.equal(await sh(child, `${FRESH}; cat /data/log`), log);
      assert.equal(await sh(child, "sha256sum < /data/noise"), await sh(survivor, "sha256sum < /data/noise"));
      await child.kill();
    }
    await daemon.controller.killSandboxes({ all: true });
    for (const { tag } of await daemon.controller.listSnapshots()) if (tag !== TAG) await daemon.controller.deleteSnapshot(tag);
    await daemon.controller.gc();
    assert.deepEqual(await disksOfVms(daemon.home), []);
    assert.equal((await namesIn(daemon.home.snapshots)).filter((name) => name.startsWith("sn-")).length, 1);
    assert.equal((await daemon.controller.snapshotInfo(TAG)).disk_own_bytes > 0, true, "no other snapshot shares its layer");
  });

  it("counts against the limit of all disks", async () => {
    await daemon.down();
    await daemon.up(["--max-disk-mib", String(DISK_MIB + 10)]);
    const only = await fork(TAG);
    await assert.rejects(fork(TAG), { code: "LIMIT_REACHED", message: /MiB of disks/ });
    await only.kill();
    await (await fork(TAG)).kill();
  });
});
