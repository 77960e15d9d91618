// Zygotes, clones and branches by a fork with another major version of QEMU, and with another C library.
// Runs in make test-all only: it downloads the QEMU of another Debian release.

import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { after, afterEach, before, describe, it, type TestContext } from "node:test";
import { lookAtQemu } from "@forkd/runtime/vmm/qemu/binary";
import { assertDistinct, sh, value } from "../helpers/guest.ts";
import { writableLayers } from "../helpers/host.ts";
import { otherQemu } from "../helpers/other-qemu.ts";
import { DISK_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

/** Debian 13 */
const SUITE = "trixie";
const N = 6;
const MOST_ATTEMPTS = 20;
const UNIQUE = "[random.random(), float(numpy.random.rand()), uuid.uuid4().hex, os.urandom(8).hex(), socket.gethostname()]";
const WRITE = "head -c 3000000 /dev/urandom > /data/own; sync; echo 3 > /proc/sys/vm/drop_caches; sha1sum < /data/own";

describe("another QEMU", () => {
  let skip: string | undefined;
  let path = "";
  let vm: TestVm;
  /** made by it; the other one was made by the host's */
  let own: Snapshot;
  before(async () => {
    const found = await otherQemu(SUITE);
    const host = await lookAtQemu();
    process.env["FORKD_QEMU"] = found.path;
    const other = found.path === undefined ? null : await lookAtQemu();
    delete process.env["FORKD_QEMU"];
    if (found.path === undefined) skip = found.missing;
    else if (major(host) >= major(other)) skip = `the host's QEMU ${host?.version} is not older than ${other?.version}`;
    if (found.path === undefined || skip !== undefined) return;
    path = realpathSync(found.path);
    // with the host's QEMU, because other files use the same snapshot
    await (await startVm("host-qemu")).close();
    process.env["FORKD_QEMU"] = path;
    vm = await startVm("other-qemu");
    own = (await vm.runtime.createSnapshot({ ...DISK_WARM, tag: `${vm.tag}-own` })).snapshot;
  });
  afterEach(async () => Promise.all((vm?.runtime.sandboxes ?? []).map(async (sandbox) => sandbox.kill())));
  after(async () => vm?.close());

  const skipped = (context: TestContext): boolean => {
    if (skip !== undefined) context.skip(skip);
    return skip !== undefined;
  };
  const assertIsOther = (sandbox: Sandbox): void => assert.equal(realpathSync(`/proc/${sandbox.vm.pid}/exe`), path);

  /** All cloned from one zygote */
  async function clones(snapshot: Snapshot, n: number): Promise<Sandbox[]> {
    await vm.runtime.zygotes.make(snapshot);
    assert.equal(vm.runtime.zygotes.refusal, null);
    const sandboxes = await vm.forkMany(n, snapshot);
    for (const sandbox of sandboxes) {
      assert.equal(sandbox.vm.startedBy, "clone");
      assertIsOther(sandbox);
    }
    return sandboxes;
  }

  /** Again while a thread of the VMM is not idle in time, as on a busy host */
  async function branchByFork(source: Sandbox, name: string): Promise<Snapshot> {
    for (let attempts = 1; ; attempts++) {
      const { snapshot, takenFrom } = await vm.runtime.branch(source, `${vm.tag}-${name}-${attempts}`);
      if (takenFrom === "fork") return snapshot;
      assert.ok(source.forkObstacle === null && attempts < MOST_ATTEMPTS, source.forkObstacle ?? "its VMM was never idle in time");
    }
  }

  it("clones a snapshot of the host's QEMU: each child is unique and has its own memory", async (context) => {
    if (skipped(context)) return;
    const sandboxes = await clones(vm.snapshot, N);
    const answers = (await Promise.all(sandboxes.map(async (one) => value(one, UNIQUE)))) as unknown[][];
    for (const at of (answers[0] ?? []).keys())
      assertDistinct(
        `value ${at}`,
        answers.map((answer) => answer[at]),
      );
    await Promise.all(sandboxes.map(async (one, at) => value(one, `mine = ${at}`)));
    assert.deepEqual(
      await Promise.all(sandboxes.map(async (one) => value(one, "mine"))),
      sandboxes.map((_, at) => at),
    );
  });

  it("clones a snapshot of its own, with a disk: each child writes a layer of its own", async (context) => {
    if (skipped(context)) return;
    assert.match(own.manifest.shape.engineVersion, /^1\d\./);
    const sandboxes = await clones(own, N);
    const sums = await Promise.all(sandboxes.map(async (one) => sh(one, WRITE)));
    assertDistinct("the sum", sums);
    const again = await Promise.all(sandboxes.map(async (one) => sh(one, "cat /data/kept; sha1sum < /data/own")));
    assert.deepEqual(
      again,
      sums.map((sum) => `frozen\n${sum}`),
    );
  });

  it("branches restored and cloned sandboxes by a fork, with and without a disk", async (context) => {
    if (skipped(context)) return;
    for (const from of [vm.snapshot, own]) {
      await vm.runtime.zygotes.make(from);
      const sources = [await vm.runtime.forkOne(from, { restored: true }), await vm.fork(from)];
      assert.deepEqual(
        sources.map((source) => source.vm.startedBy),
        ["restore", "clone"],
      );
      for (const source of sources) {
        const name = `of-${source.id}`;
        await value(source, `kept = ${JSON.stringify(name)}; data = bytearray(os.urandom(1 << 20)) * 8`);
        if (source.disk) await sh(source, `echo ${name} > /data/kept; sync`);
        const snapshot = await branchByFork(source, name);
        if (source.disk) await sh(source, "echo later > /data/kept; sync");
        const children = [...(await vm.forkMany(2, snapshot)), await vm.runtime.forkOne(snapshot, { restored: true })];
        assert.deepEqual(
          children.map((child) => child.vm.startedBy),
          ["clone", "clone", "restore"],
        );
        for (const child of children) {
          assertIsOther(child);
          assert.equal(await value(child, "kept"), name);
          if (!child.disk) continue;
          assert.equal(await sh(child, "echo 3 > /proc/sys/vm/drop_caches; cat /data/kept"), name);
          assert.equal(await writableLayers(child), 1);
        }
        const code = "__import__('zlib').crc32(data)";
        assert.equal(new Set(await Promise.all([source, ...children].map(async (one) => value(one, code)))).size, 1);
        assertDistinct("randomness", await Promise.all([source, ...children].map(async (one) => value(one, "os.urandom(8).hex()"))));
        // a grandchild of a clone
        const [clone] = children;
        assert.ok(clone);
        const below = await vm.fork(await branchByFork(clone, `below-${name}`));
        assert.deepEqual([below.vm.startedBy, await value(below, "kept")], ["clone", name]);
      }
    }
  });
});

function major(found: { version: string | null } | null): number {
  return Number(found?.version?.split(".")[0] ?? 0);
}
