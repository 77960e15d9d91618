// Snapshots of running sandboxes: content, cost, and no effect on the source.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { after, afterEach, before, describe, it } from "node:test";
import { rounds } from "../helpers/all.ts";
import { assertDistinct, rejection, sh, value } from "../helpers/guest.ts";
import { flatImages } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

const MIB = 1024 * 1024;
const PAGE = 4096;

async function read(sandbox: Sandbox, path: string): Promise<string> {
  return (await sandbox.files.read(path)).toString();
}

async function endAll(sandboxes: readonly (Sandbox | undefined)[]): Promise<void> {
  await Promise.all(sandboxes.map(async (sandbox) => sandbox?.kill()));
}

describe("a branch", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("branch");
  });
  // a failed test must not leave its sandboxes running
  afterEach(async () => endAll(vm.runtime.sandboxes));
  after(async () => vm.close());

  it("of a branch of a branch has the values and files of each level, and all diverge independently", async () => {
    const line: Sandbox[] = [await vm.fork()];
    await value(line[0]!, "level = 0; trail = []");
    for (let level = 1; level <= 3; level++) {
      const source = line.at(-1)!;
      await value(source, `level = ${level}; trail.append('level ${level}'); block${level} = numpy.full(100_000, ${level})`);
      await source.files.write(`/var/level-${level}`, `written at level ${level}`);
      await source.files.write("/var/newest", String(level));
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-depth-${level}`);
      assert.equal(snapshot.manifest.depth, level);
      assert.equal(snapshot.manifest.branchedFrom, source.id);
      assert.equal((await vm.runtime.snapshots.get(`${vm.tag}-depth-${level}`)).manifest.id, snapshot.manifest.id);
      const child = await vm.fork(snapshot);
      assert.equal(await value(child, "level"), level);
      assert.deepEqual(
        await value(child, "trail"),
        Array.from({ length: level }, (_, i) => `level ${i + 1}`),
      );
      for (let below = 1; below <= level; below++) {
        assert.equal(await value(child, `int(block${below}.sum())`), below * 100_000);
        assert.equal(await read(child, `/var/level-${below}`), `written at level ${below}`);
      }
      line.push(child);
    }
    for (const [i, sandbox] of line.entries()) {
      await value(sandbox, `level = 'own ${i}'`);
      await sandbox.files.write("/var/newest", `own ${i}`);
    }
    for (const [i, sandbox] of line.entries()) {
      assert.equal(await value(sandbox, "level"), `own ${i}`);
      assert.equal(await read(sandbox, "/var/newest"), `own ${i}`);
      assert.deepEqual(await value(sandbox, "len(trail)"), Math.min(i + 1, 3));
    }
    // a branch does not change when its source and its children continue
    const again = await vm.fork(`${vm.tag}-depth-2`);
    assert.deepEqual([await value(again, "level"), await read(again, "/var/newest")], [2, "2"]);
    await endAll([...line, again]);
  });

  it("in the middle of an eval: the source and every grandchild finish the eval", async () => {
    const source = await vm.fork();
    const ready = Promise.withResolvers<void>();
    const code =
      "begun = random.random()\nprint('ready')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\ntotal = sum(range(1000)) + int(open('/tmp/go').read())\nprint('finished')\ntotal";
    const running = source.eval(code, { onStdout: () => ready.resolve(), timeoutMs: patience() });
    await ready.promise;
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-busy`);
    const grandchildren = await vm.forkMany(3, snapshot);
    for (const [i, child] of grandchildren.entries()) {
      assert.ok(["reseeded", "pending"].includes(child.certificate.kernels["python"]?.state ?? ""));
      await child.files.write("/tmp/go", String(i + 1));
    }
    const results = await Promise.all(grandchildren.map(async (child) => child.eval("total", { timeoutMs: patience() })));
    assert.deepEqual(
      results.map(({ json }) => json),
      [499_501, 499_502, 499_503],
    );
    assert.deepEqual(
      results.map(({ stdout }) => stdout),
      ["", "", ""],
      "output of an earlier eval was delivered",
    );
    await source.files.write("/tmp/go", "0");
    const own = await running;
    assert.deepEqual([own.json, own.stdout, own.error], [499_500, "ready\nfinished\n", null]);
    const begun = await Promise.all([source, ...grandchildren].map(async (sandbox) => value(sandbox, "begun")));
    assert.equal(new Set(begun).size, 1, "numbers drawn before the branch are shared");
    assertDistinct(
      "random.random()",
      await Promise.all([source, ...grandchildren].map(async (sandbox) => value(sandbox, "random.random()"))),
    );
    await endAll([source, ...grandchildren]);
  });

  it("is consistent when the host reads the guest's output late and catches up during the pause", async () => {
    const source = await vm.fork();
    // More than the window of one stream, so that the port's socket fills up when the host does not read
    const talkers = await Promise.all([1, 2, 3].map(async () => source.start(["cat", "/dev/zero"])));
    for (const talker of talkers) talker.finish(() => undefined).catch(() => undefined);
    const pause = source.vm.pause.bind(source.vm);
    const saveDeviceState = source.vm.saveDeviceState.bind(source.vm);
    source.vm.pause = async () => {
      const until = performance.now() + 300;
      while (performance.now() < until);
      return pause();
    };
    source.vm.saveDeviceState = async () => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      return saveDeviceState();
    };
    for (let i = 0; i < 4; i++) {
      // of a copy of the VMM, and of the source's own
      source.forkObstacle = i % 2 === 0 ? null : "the source's own VMM is tested";
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-behind-${i}`);
      const child = await vm.fork(snapshot);
      assert.equal(await value(child, "6 * 7"), 42);
      await child.kill();
    }
    await source.kill();
  });

  it("has the requests that arrive in the pause in no part of it", async () => {
    const source = await vm.fork();
    // in a copy of the VMM, no request can arrive
    source.forkObstacle = "the source's own VMM is tested";
    const saveDeviceState = source.vm.saveDeviceState.bind(source.vm);
    let asked: Promise<unknown>[] = [];
    const piece = randomBytes(MIB / 4);
    // More than the port has buffers: if the stopped VM took it, a fork would have none for its first request
    const ask = (): void => {
      for (let i = 0; i < 4; i++) asked.push(source.files.write(`/tmp/asked-${i}`, piece));
    };
    const wait = async (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 200));
    // Memory is saved meanwhile, before or after the device state
    const orders = {
      before: async () => {
        await wait();
        ask();
        await wait();
        return saveDeviceState();
      },
      after: async () => {
        ask();
        await saveDeviceState();
        ask();
        await wait();
      },
    };
    for (const [name, save] of Object.entries(orders)) {
      source.vm.saveDeviceState = save;
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-asked-${name}`);
      const child = await vm.fork(snapshot);
      assert.equal(await value(child, "6 * 7"), 42);
      await child.kill();
      await Promise.all(asked);
      asked = [];
    }
    await source.kill();
  });

  it("is correct in each of 20 concurrent branches", async () => {
    const sources = await vm.forkMany(5);
    for (const [i, source] of sources.entries()) {
      await value(source, `marker = 'sandbox ${i}'`);
      await source.files.write("/var/marker", `file of ${i}`);
    }
    const branches = await Promise.all(
      sources.flatMap((source, i) => [0, 1, 2, 3].map(async (k) => vm.runtime.branch(source, `${vm.tag}-many-${i}-${k}`))),
    );
    assert.equal(branches.length, 20);
    assertDistinct(
      "snapshot id",
      branches.map(({ snapshot }) => snapshot.manifest.id),
    );
    assert.deepEqual(
      await Promise.all(sources.map(async (source) => value(source, "marker"))),
      sources.map((_, i) => `sandbox ${i}`),
    );
    await endAll(sources);
    for (const i of sources.keys()) {
      const child = await vm.fork(`${vm.tag}-many-${i}-${i % 4}`);
      assert.equal(await value(child, "marker"), `sandbox ${i}`);
      assert.equal(await read(child, "/var/marker"), `file of ${i}`);
      await child.kill();
    }
  });

  it("keeps the source's own environment and names the engine that wrote it", async () => {
    const source = await vm.runtime.forkOne(vm.tag, { env: { OWN: "kept" } });
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-env`);
    assert.equal(snapshot.manifest.shape.engineVersion, vm.runtime.engine.version);
    const grandchild = await vm.runtime.forkOne(snapshot);
    assert.equal(await sh(grandchild, 'echo "$OWN"'), "kept");
    await endAll([source, grandchild]);
  });

  it("gets a tag once when two requests use it at the same time", async () => {
    const sources = await vm.forkMany(2);
    const tag = `${vm.tag}-once`;
    const outcomes = await Promise.allSettled(sources.map(async (source) => vm.runtime.branch(source, tag)));
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
    const refused = outcomes.find((outcome) => outcome.status === "rejected");
    await rejection(Promise.reject(refused?.reason as Error), "EXISTS");
    await rejection(vm.runtime.branch(sources[0]!, tag), "EXISTS");
    await rejection(vm.runtime.createSnapshot({ tag, image: "python-numpy" }), "EXISTS");
    assert.equal((await vm.runtime.snapshots.get(tag)).manifest.tag, tag);
    await endAll(sources);
  });

  it("can be forked after its flat image was evicted, and no flat image in use is evicted", async () => {
    const source = await vm.fork();
    await value(source, "kept = 'in the delta'");
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-evict`);
    const first = await vm.runtime.forkOne(snapshot, { restored: true });
    const flat = `${snapshot.manifest.id}.ram`;
    await vm.runtime.flats.evict(0);
    assert.ok((await flatImages(vm.home)).includes(flat), "an image in use was removed");
    await first.kill();
    await vm.runtime.flats.evict(0);
    assert.deepEqual((await flatImages(vm.home)).includes(flat), false);
    const second = await vm.runtime.forkOne(snapshot, { restored: true });
    assert.equal(await value(second, "kept"), "in the delta");
    await endAll([source, second]);
  });

  it("stores the changes since the previous branch of its source, and each can be removed alone", async () => {
    const source = await vm.fork();
    await value(source, "data = [bytearray(os.urandom(MIB)) for _ in range(40)]; step = 0; len(data)".replaceAll("MIB", String(MIB)));
    // Hash in place: a copy of the data would change as many pages
    const hash = "[step, [__import__('zlib').crc32(block) for block in data]]";
    const changed = 4;
    const taken: { tag: string; hash: unknown; stored: number; snapshot: Snapshot }[] = [];
    const branch = async (name: string): Promise<void> => {
      const tag = `${vm.tag}-again-${name}`;
      const { snapshot, deltaBytes } = await vm.runtime.branch(source, tag);
      taken.push({ tag, hash: await value(source, hash), stored: deltaBytes, snapshot });
      await value(source, `step += 1\nfor i in range(${changed}): data[(step * ${changed} + i) % 40][:] = os.urandom(${MIB})\nNone`);
    };
    for (let round = 0; round < 4; round++) await branch(String(round));
    const [first, , third, fourth] = taken;
    assert.ok(first!.stored >= 40 * MIB);
    const { memory } = fourth!.snapshot.manifest;
    assert.ok(memory.kind === "delta" && memory.earlier?.length === 3 && memory.base === vm.snapshot.manifest.id);
    // includes the pages that the guest kernel changes itself
    assert.ok(fourth!.stored < 20 * MIB, `${fourth!.stored} bytes stored, ${changed} MiB changed`);
    assert.equal(fourth!.snapshot.manifest.depth, first!.snapshot.manifest.depth);
    for (const { snapshot, hash: wanted } of taken) {
      const child = await vm.fork(snapshot);
      assert.deepEqual(await value(child, hash), wanted);
      await child.kill();
    }
    // The fourth snapshot needs neither the first nor the third, which the next branch would follow
    for (const { tag } of [first!, third!]) await vm.runtime.removeSnapshot(tag);
    await vm.runtime.flats.evict(0);
    const child = await vm.fork(fourth!.snapshot);
    assert.deepEqual(await value(child, hash), fourth!.hash);
    await child.kill();
    await vm.runtime.removeSnapshot(fourth!.tag);
    await branch("second");
    const follower = taken.at(-1)!;
    assert.ok(follower.snapshot.manifest.memory.kind === "delta" && follower.snapshot.manifest.memory.earlier?.length === 2);
    assert.ok(follower.stored < 30 * MIB, `${follower.stored} bytes stored`);
    const other = await vm.fork(follower.snapshot);
    assert.deepEqual(await value(other, hash), follower.hash);
    await other.kill();
    for (const { tag } of [taken[1]!, follower]) await vm.runtime.removeSnapshot(tag);
    await branch("alone");
    const alone = taken.at(-1)!;
    assert.ok(alone.snapshot.manifest.memory.kind === "delta" && alone.snapshot.manifest.memory.earlier === undefined);
    assert.ok(alone.stored >= 40 * MIB, "all before it were removed, so it has everything");
    const last = await vm.fork(alone.snapshot);
    assert.deepEqual(await value(last, hash), alone.hash);
    await endAll([source, last]);
  });

  it("can be repeated any number of times for one source", async () => {
    const source = await vm.fork();
    const count = rounds(20, 100);
    let last: Snapshot | undefined;
    for (let step = 1; step <= count; step++) {
      await value(source, `step = ${step}; data = os.urandom(${MIB}); None`);
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-many-${step}`);
      const { memory } = snapshot.manifest;
      assert.ok(memory.kind === "delta" && (memory.earlier?.length ?? 0) < 16);
      const files = [...(memory.earlier ?? []), memory.bytes];
      const bytes = files.reduce((sum, size) => sum + size, 0);
      assert.ok(bytes < 4 * (memory.pages + 1) * PAGE + 16 * PAGE, `${bytes} bytes in ${files.length} files for ${memory.pages} pages`);
      if (last) await vm.runtime.removeSnapshot(last.manifest.tag);
      last = snapshot;
    }
    const hash = "[step, __import__('zlib').crc32(data)]";
    const child = await vm.fork(last);
    assert.deepEqual(await value(child, hash), await value(source, hash));
    await endAll([source, child]);
  });

  it("stores the changed pages and little more", async () => {
    const source = await vm.fork();
    await value(source, "data = os.urandom(20 * 1024 * 1024); len(data)");
    const big = await vm.runtime.branch(source, `${vm.tag}-cost-big`);
    const quiet = await vm.fork();
    await value(quiet, "1");
    const small = await vm.runtime.branch(quiet, `${vm.tag}-cost-small`);
    for (const { snapshot, changedPages, deltaBytes } of [big, small]) {
      const index = changedPages * 16 + 2 * PAGE;
      assert.equal((await stat(snapshot.memory)).size, deltaBytes);
      assert.ok(deltaBytes <= 1.1 * changedPages * PAGE + index, `${deltaBytes} bytes for ${changedPages} pages`);
      assert.ok(snapshot.manifest.memory.kind === "delta" && snapshot.manifest.memory.pages === changedPages);
    }
    assert.ok(big.changedPages >= (20 * MIB) / PAGE, `${big.changedPages} pages hold 20 MiB`);
    assert.ok(small.changedPages < (20 * MIB) / PAGE, `${small.changedPages} pages changed by one eval`);
    const child = await vm.fork(big.snapshot);
    const hash = "__import__('zlib').crc32(data)";
    assert.equal(await value(child, hash), await value(source, hash));
    await endAll([source, quiet, child]);
  });

  it("prevents the removal of the snapshots that it builds on", async () => {
    const source = await vm.fork();
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-top`);
    await rejection(vm.runtime.removeSnapshot(`${vm.tag}-top-of-nothing`), "NOT_FOUND");
    const used = await rejection(vm.runtime.removeSnapshot(vm.tag), "IN_USE");
    assert.match(used.message, /sandbox/);
    await source.kill();
    const built = await rejection(vm.runtime.removeSnapshot(vm.tag), "IN_USE");
    assert.ok(built.message.includes(`${vm.tag}-top`), built.message);
    const child = await vm.fork(snapshot);
    await rejection(vm.runtime.removeSnapshot(`${vm.tag}-top`), "IN_USE");
    await child.kill();
    await vm.runtime.removeSnapshot(`${vm.tag}-top`);
    await rejection(vm.fork(`${vm.tag}-top`), "NOT_FOUND");
    assert.ok(!(await flatImages(vm.home)).includes(`${snapshot.manifest.id}.ram`));
  });

  it("cannot be made of a sandbox that has ended", async () => {
    const source = await vm.fork();
    await source.kill();
    await rejection(vm.runtime.branch(source, `${vm.tag}-ended`), "VMM_EXITED");
    await rejection(vm.runtime.snapshots.get(`${vm.tag}-ended`), "NOT_FOUND");
  });

  it("can be removed together with its siblings while their sandboxes end", async () => {
    const source = await vm.fork();
    const tags = Array.from({ length: 6 }, (_, i) => `${vm.tag}-together-${i}`);
    for (const tag of tags) await vm.runtime.branch(source, tag);
    const children = await Promise.all(tags.map(async (tag) => vm.fork(tag)));
    await endAll([source, ...children]);
    // The end of a sandbox evicts flat images at the same time
    await Promise.all([vm.runtime.flats.evict(0), ...tags.map(async (tag) => vm.runtime.removeSnapshot(tag))]);
    const left = new Set(await flatImages(vm.home));
    for (const { snapshot } of children) assert.ok(!left.has(`${snapshot.manifest.id}.ram`));
  });
});
