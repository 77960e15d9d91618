// What failed once in hundreds of runs on a busy host, again and again: FORKD_TEST_RUNS=300 make test-e2e FILE=repeated

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, afterEach, before, describe, it } from "node:test";
import { rounds } from "../helpers/all.ts";
import { sh, value } from "../helpers/guest.ts";
import { PYTHON_WARM, startVm, type TestVm } from "../helpers/vm.ts";

const RUNS = Number(process.env["FORKD_TEST_RUNS"] ?? rounds(1, 2));
const MIB = 1024 * 1024;
const STREAMED = 50 * MIB;

describe(`${RUNS} times`, () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("repeated");
  });
  // a failed test must not leave its sandboxes running
  afterEach(async () => Promise.all(vm.runtime.sandboxes.map(async (sandbox) => sandbox.kill())));
  after(async () => vm.close());

  it("a branch loses no byte of 50 MB that stream in and out of the source meanwhile", async () => {
    for (let run = 0; run < RUNS; run++) await branchOfStream(run);
  });

  it("a restored child answers", async () => {
    const source = await vm.fork();
    for (let run = 0; run < RUNS; run++) {
      // without a copy of the VMM, so that its first fork is a restore
      source.forkObstacle = "its children are to be restored";
      await value(source, `number = ${run}`);
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-restored-${run}`);
      const child = await vm.fork(snapshot);
      assert.equal(child.vm.startedBy, "restore");
      assert.equal(await value(child, "number"), run);
      assert.equal(await sh(child, "echo $((6 * 7))"), "42");
      await child.kill();
      await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    }
  });

  it("a snapshot is made from an image", async () => {
    for (let run = 0; run < RUNS; run++) {
      const { snapshot } = await vm.runtime.createSnapshot({ ...PYTHON_WARM, tag: `${vm.tag}-made-${run}` });
      const child = await vm.fork(snapshot);
      assert.deepEqual(await value(child, "warmed"), [1, 2]);
      await child.kill();
      await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    }
  });

  async function branchOfStream(run: number): Promise<void> {
    const source = await vm.fork();
    const received = createHash("sha256");
    const sent = createHash("sha256");
    let bytes = 0;
    const marks = [8, 20, 35].map((mib) => ({ at: mib * MIB, reached: Promise.withResolvers<void>() }));
    const cat = await source.start(["cat"], { stdin: "open" });
    const ended = cat.finish((_channel, piece) => {
      received.update(piece);
      bytes += piece.length;
      for (const { at, reached } of marks) if (bytes >= at) reached.resolve();
    });
    const feeding = (async () => {
      for (let left = STREAMED; left > 0; left -= MIB) {
        const piece = randomBytes(MIB);
        sent.update(piece);
        await cat.write(piece);
      }
      await cat.closeStdin();
    })();
    const branches = [];
    for (const [i, { reached }] of marks.entries()) {
      await reached.promise;
      branches.push(await vm.runtime.branch(source, `${vm.tag}-stream-${run}-${i}`));
    }
    await feeding;
    assert.deepEqual(await ended, { code: 0, signal: null, timedOut: false });
    assert.equal(bytes, STREAMED);
    assert.equal(received.digest("hex"), sent.digest("hex"));
    for (const { snapshot } of branches) {
      const child = await vm.fork(snapshot);
      const inherited = (await child.processes.list()).filter(({ argv }) => argv[0] === "cat");
      assert.deepEqual(
        inherited.map(({ id, pid, exit }) => [id, pid, exit]),
        [[cat.id, cat.pid, undefined]],
      );
      assert.equal(await sh(child, `cat /proc/${cat.pid}/comm`), "cat");
      assert.equal(await value(child, "6 * 7"), 42);
      const content = randomBytes(2 * MIB);
      await child.files.write("/tmp/through", content);
      assert.ok((await child.files.read("/tmp/through")).equals(content));
      await child.kill();
    }
    await source.kill();
    for (const { snapshot } of branches.toReversed()) await vm.runtime.removeSnapshot(snapshot.manifest.tag);
  }
});
