// Branches by a fork of the source's VMM: the same as other branches, and replaced by those where the VMM cannot be copied.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { Sandbox as Client } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { assertDistinct, sh, value } from "../helpers/guest.ts";
import { vmmsOf, waitUntilGone, writableLayers, zygotesOf } from "../helpers/host.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { BranchResult, Sandbox, Snapshot } from "@forkd/runtime";

/** Hashes blocks all the time, and compares with the hashes of before: a wrong register or page shows as a mismatch */
const HASHER = `
import hashlib, os
blocks = [os.urandom(4096) for _ in range(64)]
known = [hashlib.sha256(block).hexdigest() for block in blocks]
rounds = wrong = 0
while True:
    total = 0.0
    for block, expected in zip(blocks, known):
        wrong += hashlib.sha256(block).hexdigest() != expected
        total += sum(float(byte) * 0.5 for byte in block[:64])
    wrong += total != sum(sum(float(byte) * 0.5 for byte in block[:64]) for block in blocks)
    rounds += 1
    with open("/tmp/rounds.new", "w") as file: file.write(f"{rounds} {wrong}")
    os.rename("/tmp/rounds.new", "/tmp/rounds")
`;
const MOST_ATTEMPTS = 20;
const NAMES = "sorted(name for name in globals() if not name.startswith('__'))";

async function endAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map(async (sandbox) => sandbox.kill()));
}

/** A child that is cloned from the copy of the source, and one that loads what was stored */
async function childrenOf(vm: TestVm, snapshot: Snapshot): Promise<[Sandbox, Sandbox]> {
  const live = await vm.fork(snapshot);
  const restored = await vm.runtime.forkOne(snapshot, { restored: true });
  assert.deepEqual([live.vm.startedBy, restored.vm.startedBy], ["clone", "restore"]);
  return [live, restored];
}

/** Again while a thread of the VMM is not idle in time, as on a busy host */
async function branchByFork(vm: TestVm, source: Sandbox, name: string): Promise<BranchResult & { attempts: number }> {
  for (let attempts = 1; ; attempts++) {
    const result = await vm.runtime.branch(source, `${vm.tag}-${name}-${attempts}`);
    if (result.takenFrom === "fork") return { ...result, attempts };
    assert.ok(source.forkObstacle === null && attempts < MOST_ATTEMPTS, source.forkObstacle ?? "its VMM was never idle in time");
  }
}

describe("a branch by a fork of the VMM", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("branch-fork");
  });
  afterEach(async () => endAll(vm.runtime.sandboxes));
  after(async () => vm.close());

  const branch = async (source: Sandbox, name: string): Promise<Snapshot> => (await branchByFork(vm, source, name)).snapshot;

  it("of a restored and of a cloned sandbox: children from its copy are equal to restored ones, and all are unique", async () => {
    await vm.runtime.zygotes.make(vm.snapshot);
    const sources = [await vm.runtime.forkOne(vm.snapshot, { restored: true }), await vm.fork()];
    assert.deepEqual(
      sources.map((source) => source.vm.startedBy),
      ["restore", "clone"],
    );
    for (const [at, source] of sources.entries()) {
      await value(source, `kept = ${at}; data = bytearray(os.urandom(1 << 20)) * 8`);
      await source.files.write("/var/kept", `of ${at}`);
      const snapshot = await branch(source, `equal-${at}`);
      const children = await childrenOf(vm, snapshot);
      const asked = async (code: string): Promise<unknown[]> => Promise.all([source, ...children].map(async (one) => value(one, code)));
      for (const code of ["kept", "__import__('zlib').crc32(data)", NAMES, "open('/var/kept').read()"])
        assert.equal(new Set((await asked(code)).map((answer) => JSON.stringify(answer))).size, 1, code);
      for (const code of ["random.random()", "float(numpy.random.rand())", "os.urandom(8).hex()", "socket.gethostname()"])
        assertDistinct(code, await asked(code));
      const [live, restored] = children.map(({ certificate }) => certificate);
      assert.ok(live && restored);
      assert.deepEqual(Object.keys(live), Object.keys(restored));
      assert.deepEqual(live.kernels, restored.kernels);
      assert.deepEqual(live.not_reseeded, restored.not_reseeded);
      for (const { ran_before_ms } of [live, restored]) assert.ok(ran_before_ms !== null && ran_before_ms > 0, String(ran_before_ms));
    }
  });

  it("gives children namespaces of their own and no capabilities, and leaves no secret", async () => {
    const source = await vm.fork();
    const snapshot = await branch(source, "confined");
    const children = await vm.forkMany(2, snapshot);
    const pids = [source, ...children].map((one) => one.vm.pid);
    for (const kind of ["user", "ipc", "uts"])
      assertDistinct(
        `${kind} namespace`,
        pids.map((pid) => readlinkSync(`/proc/${pid}/ns/${kind}`)),
      );
    for (const pid of pids) {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      for (const set of ["CapPrm", "CapEff", "CapInh", "CapAmb"])
        assert.match(status, new RegExp(`^${set}:\\s+0+$`, "m"), `${set} of ${pid}`);
      assert.match(status, /^TracerPid:\s+0$/m);
      assert.doesNotMatch(readFileSync(`/proc/${pid}/maps`, "utf8"), / rwxs /);
    }
    const [first, second] = children;
    assert.ok(first && second);
    await first.kill();
    assert.equal(await value(second, "1 + 1"), 2, "it lives on without its sibling");
  });

  it("of a branch of a branch: each level is cloned from the one below, and stores only its own changes", async () => {
    const line = [await vm.fork()];
    for (let level = 1; level <= 4; level++) {
      const source = line.at(-1)!;
      await value(source, `level${level} = bytearray(os.urandom(1 << 20)) * 6; level = ${level}`);
      const { snapshot, attempts, deltaBytes } = await branchByFork(vm, source, `nested-${level}`);
      const { memory } = snapshot.manifest;
      assert.ok(memory.kind === "delta" && memory.base === source.snapshot.manifest.id);
      // a second attempt shares the delta of the first
      assert.ok(memory.earlier === undefined || attempts > 1);
      if (level > 1) assert.ok(deltaBytes < 14 << 20, `level ${level} stored ${deltaBytes} bytes`);
      const [live, restored] = await childrenOf(vm, snapshot);
      const sums = `[level, ${Array.from({ length: level }, (_, i) => `__import__('zlib').crc32(level${i + 1})`).join(", ")}]`;
      assert.deepEqual(await value(live, sums), await value(restored, sums));
      assert.deepEqual(await value(live, sums), await value(source, sums));
      await restored.kill();
      line.push(live);
    }
    // a further branch of a child shares the delta of its first one
    const tip = line.at(-1)!;
    await branch(tip, "nested-first");
    const { snapshot, deltaBytes } = await vm.runtime.branch(tip, `${vm.tag}-nested-second`);
    const { memory } = snapshot.manifest;
    assert.ok(memory.kind === "delta" && memory.base === tip.snapshot.manifest.id && memory.earlier?.length === 1);
    assert.ok(deltaBytes < 4 << 20, `${deltaBytes} bytes`);
    assert.equal(await value((await childrenOf(vm, snapshot))[1], "level"), 4);
  });

  it("while the guest computes: source and children continue to compute right", async () => {
    const source = await vm.fork();
    await source.start(["python3", "-c", HASHER]);
    const rounds = async (one: Sandbox): Promise<[number, number]> => {
      const [count, wrong] = (await sh(one, "cat /tmp/rounds")).split(" ").map(Number);
      return [count ?? 0, wrong ?? -1];
    };
    await until(async () => (await rounds(source).catch((): [number, number] => [0, 0]))[0] > 0);
    const children: Sandbox[] = [];
    let copied = 0;
    for (let i = 0; i < 5; i++) {
      // on a busy host a thread of the VMM may not be idle in time
      const { snapshot, takenFrom } = await vm.runtime.branch(source, `${vm.tag}-computing-${i}`);
      if (takenFrom === "fork") copied++;
      children.push(await vm.fork(snapshot));
    }
    assert.ok(copied > 0 && source.forkObstacle === null, source.forkObstacle ?? "");
    for (const one of [source, ...children]) {
      const [before] = await rounds(one);
      await until(async () => (await rounds(one))[0] > before + 2);
      assert.equal((await rounds(one))[1], 0);
    }
  });

  it("is complete when the source is killed as soon as it runs again", async () => {
    const attempt = async (at: number): Promise<Snapshot | undefined> => {
      const source = await vm.fork();
      await value(source, "kept = 'of the killed'");
      let killed: Promise<void> | undefined;
      const onResumed = (): void => void (killed = source.kill());
      // it may fail if it was taken from the source's own VMM, because a thread was not idle in time
      const branched = await vm.runtime.branch(source, { tag: `${vm.tag}-killed-${at}`, onResumed }).catch(() => undefined);
      await killed;
      return branched?.takenFrom === "fork" ? branched.snapshot : undefined;
    };
    let snapshot: Snapshot | undefined;
    for (let at = 1; at < MOST_ATTEMPTS && !snapshot; at++) snapshot = await attempt(at);
    assert.ok(snapshot, "no VMM was idle in time");
    for (const child of await childrenOf(vm, snapshot)) assert.equal(await value(child, "kept"), "of the killed");
  });

  it("is taken from the source if its VMM cannot be copied, or the copy not be saved", async () => {
    const { engine } = vm.runtime;
    const fork = engine.fork.bind(engine);
    const broken: Record<string, typeof fork> = {
      refused: async () => Promise.reject(new Error("it is refused")),
      // the copy ends before it is saved
      ended: async (...args) => {
        const copy = await fork(...args);
        await copy.kill();
        return copy;
      },
    };
    for (const [name, instead] of Object.entries(broken)) {
      const source = await vm.fork();
      await value(source, `kept = '${name}'`);
      engine.fork = instead;
      try {
        const first = await vm.runtime.branch(source, `${vm.tag}-${name}`);
        assert.equal(first.takenFrom, "source");
        assert.notEqual(source.forkObstacle, null);
        assert.equal(await value(await vm.fork(first.snapshot), "kept"), name);
      } finally {
        engine.fork = fork;
      }
      const second = await vm.runtime.branch(source, `${vm.tag}-${name}-again`);
      assert.equal(second.takenFrom, "source", "it is not tried again");
      assert.equal(await value(source, "kept"), name);
    }
    const own = readdirSync(vm.runtime.runDir).filter((name) => name.startsWith("zy-"));
    assert.equal(own.length, vm.runtime.zygotes.size, "a folder of a copy is left");
  });

  it("fails without a trace if its request was answered and the copy cannot be saved", async () => {
    const source = await vm.fork();
    const { engine } = vm.runtime;
    const fork = engine.fork.bind(engine);
    const copies: number[] = [];
    engine.fork = async (...args) => {
      const copy = await fork(...args);
      copies.push(copy.pid);
      await copy.kill();
      return copy;
    };
    let tag = "";
    try {
      // a branch whose VMM was not idle in time is taken from the source, and succeeds
      for (let at = 1; at < MOST_ATTEMPTS && copies.length === 0; at++) {
        tag = `${vm.tag}-answered-${at}`;
        const branched = vm.runtime.branch(source, { tag, onResumed: () => undefined });
        const isMade = await branched.then(
          () => true,
          () => false,
        );
        assert.equal(isMade, copies.length === 0);
      }
    } finally {
      engine.fork = fork;
    }
    assert.equal(copies.length, 1, "its VMM was never idle in time");
    await assert.rejects(vm.runtime.snapshots.get(tag), { code: "NOT_FOUND" });
    assert.equal(await value(source, "1 + 1"), 2);
  });

  it("keeps its copy until the snapshot is removed, and then nothing of it", async () => {
    const source = await vm.fork();
    const snapshot = await branch(source, "removed");
    const held = zygotesOf(vm.runtime.runDir);
    assert.ok(held.length > 0);
    const size = vm.runtime.zygotes.size;
    await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    assert.equal(vm.runtime.zygotes.size, size - 1);
    assert.equal(zygotesOf(vm.runtime.runDir).length, held.length - 1);
  });
});

describe("the copy of a branch", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("branch-fork-idle", { zygotes: { idleMs: 300 } });
  });
  after(async () => vm.close());

  it("ends when it is not used, and children are restored", async () => {
    const source = await vm.fork();
    await value(source, "kept = 1");
    const { snapshot } = await branchByFork(vm, source, "idle");
    await until(() => vm.runtime.zygotes.size === 0);
    const child = await vm.fork(snapshot);
    assert.deepEqual([child.vm.startedBy, await value(child, "kept")], ["restore", 1]);
  });
});

describe("a branch of a sandbox with a disk", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("branch-fork-disk", { spec: DISK_WARM });
  });
  afterEach(async () => endAll(vm.runtime.sandboxes));
  after(async () => vm.close());

  const WRITE = "head -c 3000000 /dev/urandom > /data/own; sync; echo 3 > /proc/sys/vm/drop_caches; sha1sum < /data/own";
  const READ = "echo 3 > /proc/sys/vm/drop_caches; sha1sum < /data/own; cat /data/kept";

  it("has the disk of that moment in each child, cloned or restored, and all write to layers of their own", async () => {
    await vm.runtime.zygotes.make(vm.snapshot);
    for (const first of [await vm.runtime.forkOne(vm.snapshot, { restored: true }), await vm.fork()]) {
      let source = first;
      for (let level = 1; level <= 3; level++) {
        const sum = await sh(source, WRITE);
        await sh(source, `echo level ${level} > /data/kept; sync`);
        const { snapshot } = await branchByFork(vm, source, `${first.id}-${level}`);
        // what the source writes from now on is not in the branch
        const after = await sh(source, WRITE);
        const children = await childrenOf(vm, snapshot);
        for (const child of children) {
          assert.equal(await sh(child, READ), `${sum}\nlevel ${level}`);
          assert.equal(await writableLayers(child), 1);
        }
        const own = await Promise.all(children.map(async (child) => sh(child, WRITE)));
        assert.equal(new Set([sum, after, ...own]).size, 4);
        assert.deepEqual(await Promise.all(children.map(async (child) => sh(child, "sha1sum < /data/own"))), own);
        assert.equal(await sh(source, READ), `${after}\nlevel ${level}`);
        assert.equal(await writableLayers(source), 1, "frozen layers are open for reading only");
        source = children[level % 2] ?? source;
      }
    }
  });

  it("that could not be copied after the freeze is taken from the source, whose next branch is copied", async () => {
    const source = await vm.fork();
    const { engine } = vm.runtime;
    const fork = engine.fork.bind(engine);
    await sh(source, "echo 1 > /data/kept; sync");
    engine.fork = async () => Promise.reject(new Error("it is refused"));
    let snapshots: Snapshot[];
    try {
      snapshots = [(await vm.runtime.branch(source, `${vm.tag}-refused`)).snapshot];
    } finally {
      engine.fork = fork;
    }
    source.forkObstacle = null;
    await sh(source, "echo 2 > /data/kept; sync");
    snapshots.push((await branchByFork(vm, source, "after")).snapshot);
    for (const [at, snapshot] of snapshots.entries()) assert.equal(await sh(await vm.fork(snapshot), "cat /data/kept"), String(at + 1));
    assert.equal(await writableLayers(source), 1);
    const own = readdirSync(vm.runtime.runDir).filter((name) => name.startsWith("zy-"));
    assert.equal(own.length, vm.runtime.zygotes.size, "a folder of a copy is left");
  });
});

describe("a daemon that is killed", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("while a branch is saved leaves nothing incomplete; a child of a branch is adopted and can be branched", async () => {
    const { controller } = daemon;
    const [info] = await controller.spawnSandboxes("python");
    assert.ok(info);
    const source = await Client.connect(info.id, { controller });
    await source.eval("import os; data = bytearray(os.urandom(1 << 20)) * 60; kept = 7");
    const [tip] = await source.fork(1);
    assert.ok(tip);
    assert.equal(tip.info.started_by, "clone");
    await tip.eval("own = 8");
    const dir = join(daemon.home.run, "daemon");
    const answered = controller.branchSandbox(info.id, { tag: "unfinished", wait: false });
    await answered;
    const copies = zygotesOf(dir);
    await daemon.kill9();
    await until(() => vmmsOf(dir).length === 2);
    assert.deepEqual(await waitUntilGone(copies), []);
    await daemon.up();
    const listed = await controller.listSnapshots();
    const unfinished = listed.find(({ tag }) => tag === "unfinished");
    // it was complete before the daemon was killed, or it is reported as failed
    if (unfinished?.status === "ready") {
      const [child] = await controller.spawnSandboxes("unfinished");
      assert.equal((await (await Client.connect(child?.id ?? "", { controller })).eval("kept")).value, 7);
    } else await assert.rejects(controller.spawnSandboxes("unfinished"));
    const adopted = await Client.connect(tip.id, { controller });
    assert.deepEqual([(await adopted.eval("kept")).value, (await adopted.eval("own")).value], [7, 8]);
    for (const one of [adopted, await Client.connect(info.id, { controller })]) {
      const [child] = await one.fork(1);
      assert.equal(child?.info.started_by, "clone");
      assert.equal((await child?.eval("kept"))?.value, 7);
    }
    await controller.killSandboxes({ all: true });
  });
});
