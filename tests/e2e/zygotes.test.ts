// Clones of a held VMM: isolated like other children, and replaced by restored children where cloning is not possible.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { TestDaemon } from "../helpers/daemon.ts";
import { isRunning, vmmsOf, waitUntilGone, writableLayers, zygotesOf } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM, startVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";
import type { TestVm } from "../helpers/vm.ts";

const run = promisify(execFile);
const N = 6;
const MOST_ATTEMPTS = 3;
/** All values that must differ between two forks */
const UNIQUE =
  "[random.random(), float(numpy.random.rand()), float(rng.random()), uuid.uuid4().hex, os.urandom(8).hex(), socket.gethostname()]";

async function valueOf(sandbox: Sandbox, code: string): Promise<unknown> {
  const { json, error } = await sandbox.eval(code, { timeoutMs: 60_000 });
  assert.equal(error, null);
  return json;
}

async function clones(vm: TestVm, n: number): Promise<Sandbox[]> {
  await vm.runtime.zygotes.make(vm.snapshot);
  assert.equal(vm.runtime.zygotes.refusal, null);
  const outcomes = await vm.runtime.fork(vm.snapshot, { n, allOrNothing: true });
  const sandboxes = outcomes.flatMap(({ sandbox }) => (sandbox ? [sandbox] : []));
  for (const { vm: one } of sandboxes) assert.equal(one.startedBy, "clone");
  return sandboxes;
}

describe("clones of a held VMM", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("zygotes");
  });
  after(async () => vm.close());

  it("are made after the first fork of a snapshot, automatically", async () => {
    const first = await vm.fork();
    assert.equal(first.vm.startedBy, "restore");
    const second = await vm.fork();
    await until(async () => vm.runtime.zygotes.size === 1);
    const third = await vm.fork();
    assert.equal(third.vm.startedBy, "clone");
    const keys = (sandbox: Sandbox): string[] => Object.keys(sandbox.certificate).toSorted();
    assert.deepEqual(keys(third), keys(first));
    assert.deepEqual(third.certificate.kernels, first.certificate.kernels);
    assert.deepEqual([third.certificate.ran_before_ms, third.certificate.not_reseeded], [0, []]);
    for (const sandbox of [first, second, third]) await sandbox.kill();
  });

  it("have their own randomness, identity, memory and time", async () => {
    const sandboxes = await clones(vm, N);
    const answers = (await Promise.all(sandboxes.map(async (one) => valueOf(one, UNIQUE)))) as unknown[][];
    for (const [at] of (answers[0] ?? []).entries()) assert.equal(new Set(answers.map((answer) => answer[at])).size, N, `value ${at}`);
    await Promise.all(sandboxes.map(async (one, at) => valueOf(one, `mine = ${at}; mine`)));
    assert.deepEqual(
      await Promise.all(sandboxes.map(async (one) => valueOf(one, "mine"))),
      sandboxes.map((_, at) => at),
    );
    for (const one of sandboxes) {
      const skewMs = Math.abs(Number(await valueOf(one, "time.time() * 1000")) - Date.now());
      assert.ok(skewMs < 60_000, `${skewMs} ms`);
      const { stdout } = await one.exec(["sh", "-c", "echo $FROM_SNAPSHOT; hostname"]);
      assert.equal(stdout.toString(), `yes\n${one.id}\n`);
    }
    await Promise.all(sandboxes.map(async (one) => one.kill()));
  });

  it("contain no trace of the rehearsal", async () => {
    const [clone] = await clones(vm, 1);
    const restored = await vm.runtime.forkOne(vm.snapshot, { as: { ...identity(), spentBytes: 0 } });
    assert.equal(restored.vm.startedBy, "restore");
    assert.ok(clone);
    const names = "sorted(name for name in globals() if not name.startswith('__'))";
    assert.deepEqual(await valueOf(clone, names), await valueOf(restored, names));
    const first = [clone, restored].map(async (one) => (await one.eval("1")).count);
    assert.deepEqual(await first[0], await first[1]);
    const listed = await Promise.all([clone, restored].map(async (one) => (await one.processes.list()).map(({ id, tag }) => [id, tag])));
    assert.deepEqual(listed[0], listed[1]);
    const files = await Promise.all(
      [clone, restored].map(async (one) => (await one.exec(["sh", "-c", "ls -A /tmp /root /run/forkd 2>/dev/null"])).stdout.toString()),
    );
    assert.equal(files[0], files[1]);
    for (const one of [clone, restored]) await one.kill();
  });

  it("can be branched repeatedly, and their branches be forked", async () => {
    const [clone] = await clones(vm, 1);
    assert.ok(clone);
    for (const round of [1, 2, 3]) {
      await valueOf(clone, `kept = ${round}; kept`);
      const { snapshot } = await vm.runtime.branch(clone, `${vm.tag}-branch-${round}`);
      const child = await vm.runtime.forkOne(snapshot);
      assert.equal(await valueOf(child, "kept"), round);
      await child.kill();
      await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    }
    await clone.kill();
  });

  it("end alone, without effect on siblings and the zygote, and the family ends with the last", async () => {
    const [first, second] = await clones(vm, 2);
    assert.ok(first && second);
    const init = initOf(first.vm.pid);
    assert.equal(init, initOf(second.vm.pid));
    await first.kill();
    assert.equal(await valueOf(second, "1 + 1"), 2);
    await vm.runtime.zygotes.drop(vm.snapshot.manifest.id);
    assert.equal(await valueOf(second, "2 + 2"), 4, "it outlives the zygote");
    assert.ok(isRunning(init));
    await second.kill();
    assert.deepEqual(await waitUntilGone([init]), []);
  });

  it("are replaced by restored children if the zygote has ended", async () => {
    const [one] = await clones(vm, 1);
    assert.ok(one);
    const zygote = zygoteOf(one.vm.pid);
    process.kill(zygote, "SIGKILL");
    const next = await vm.fork();
    assert.equal(await valueOf(next, "1 + 1"), 2);
    for (const sandbox of [one, next]) await sandbox.kill();
  });
});

describe("children of a snapshot with a disk", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("zygotes-disk", { spec: DISK_WARM });
  });
  after(async () => vm.close());

  it("are clones, which write and sync to layers of their own", async () => {
    const sandboxes = await clones(vm, N);
    const write = async (one: Sandbox, at: number): Promise<void> => {
      const script = `set -e; cat /data/kept; head -c 4000000 /dev/urandom > /data/mine; echo ${at} > /data/who; sync; echo 3 > /proc/sys/vm/drop_caches; sha1sum < /data/mine; cat /data/who`;
      const { stdout } = await one.exec(["sh", "-c", script], { timeoutMs: 60_000 });
      const lines = stdout.toString().trim().split("\n");
      assert.deepEqual([lines[0], lines[2]], ["frozen", String(at)]);
      const again = await one.exec(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches; sha1sum < /data/mine"], { timeoutMs: 60_000 });
      assert.equal(again.stdout.toString().trim(), lines[1]);
    };
    await Promise.all(sandboxes.map(write));
    assert.deepEqual(new Set(sandboxes.map((one) => one.certificate.disk)), new Set(["private-layer"]));
    await assertSound(sandboxes);
    await Promise.all(sandboxes.map(async (one) => one.kill()));
  });

  it("can be branched while they write, again and again, and their branches be forked", async () => {
    const [clone] = await clones(vm, 1);
    assert.ok(clone);
    await clone.exec(["sh", "-c", "(while :; do date +%N >> /data/log; sync; done) > /dev/null 2>&1 &"], { timeoutMs: 60_000 });
    for (const round of [1, 2, 3]) {
      await clone.exec(["sh", "-c", `echo ${round} > /data/round; sync`], { timeoutMs: 60_000 });
      const { snapshot } = await vm.runtime.branch(clone, `${vm.tag}-branch-${round}`);
      const children = (await vm.runtime.fork(snapshot, { n: 2, allOrNothing: true })).flatMap(({ sandbox }) => (sandbox ? [sandbox] : []));
      for (const child of children) {
        const { stdout } = await child.exec(["sh", "-c", "cat /data/kept /data/round; echo child > /data/round; sync"], {
          timeoutMs: 60_000,
        });
        assert.equal(stdout.toString(), `frozen\n${round}\n`);
      }
      await assertSound([clone, ...children]);
      for (const child of children) await child.kill();
    }
    assert.deepEqual(await writableLayers(clone), 1, "frozen layers are open for reading only");
    await clone.kill();
  });
});

describe("clones with shares", () => {
  let vm: TestVm;
  let source: string;
  before(async () => {
    vm = await startVm("zygotes-shares");
    source = await mkdtemp(join(tmpdir(), "forkd-clone-share-"));
    await writeFile(join(source, "text"), "from the host");
  });
  after(async () => {
    await vm.close();
    await rm(source, { recursive: true, force: true });
  });

  /** A clone that does not become ready in time is replaced by a restored child; another one is made instead of that */
  async function clonesOf(from: Snapshot, n: number): Promise<Sandbox[]> {
    const shares = [{ source, target: "/mnt/shared" }];
    const clones: Sandbox[] = [];
    for (let attempt = 0; attempt < MOST_ATTEMPTS && clones.length < n; attempt++) {
      await vm.runtime.zygotes.make(from);
      assert.equal(vm.runtime.zygotes.refusal, null);
      const outcomes = await vm.runtime.fork(from, { n: n - clones.length, shares, allOrNothing: true });
      const made = outcomes.flatMap(({ sandbox }) => sandbox ?? []);
      clones.push(...made.filter((sandbox) => sandbox.vm.startedBy === "clone"));
    }
    assert.equal(clones.length, n);
    return clones;
  }

  /** Clones that have been idle for a moment: their guests have seen the connection of the daemon by then */
  async function read(from: Snapshot, n: number): Promise<string[]> {
    const clones = await clonesOf(from, n);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return Promise.all(
      clones.map(async (clone) => (await clone.exec(["cat", "/mnt/shared/text"], { timeoutMs: patience() })).stdout.toString()),
    );
  }

  it("read them", async () => {
    const texts = await read(vm.snapshot, 2 * N);
    assert.deepEqual(new Set(texts), new Set(["from the host"]));
    for (const sandbox of vm.runtime.sandboxes) await sandbox.kill();
  });

  it("read them where the snapshot has them mounted, and do not see them where they are not asked for", async () => {
    const first = await vm.runtime.forkOne(vm.snapshot, { shares: [{ source, target: "/mnt/shared" }] });
    const { snapshot } = await vm.runtime.branch(first, { tag: `${vm.tag}-mounted`, hold: true });
    await first.kill();
    assert.deepEqual(new Set(await read(snapshot, N)), new Set(["from the host"]));
    await vm.runtime.zygotes.make(snapshot);
    const without = await vm.fork(snapshot);
    assert.equal(without.vm.startedBy, "clone");
    const { stdout } = await without.exec(["sh", "-c", "ls -A /mnt/shared; grep -c /mnt/shared /proc/mounts"], { timeoutMs: patience() });
    assert.equal(stdout.toString(), "0\n");
  });
});

describe("zygotes", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("zygotes-life", { zygotes: { memoryBytes: 1, clones: 2 } });
  });
  after(async () => vm.close());

  const held = (): number[] => zygotesOf(vm.runtime.runDir);

  it("are replaced after some clones", async () => {
    const [first, second] = await clones(vm, 2);
    const [before] = held();
    const third = await vm.fork();
    assert.equal(third.vm.startedBy, "restore");
    await until(() => held().length === 1 && held()[0] !== before);
    const [fourth] = await clones(vm, 1);
    for (const sandbox of [first, second, third, fourth]) assert.equal(await valueOf(sandbox as Sandbox, "1 + 1"), 2);
    for (const sandbox of vm.runtime.sandboxes) await sandbox.kill();
  });

  it("end, least recently used first, when they take too much memory", async () => {
    const source = await vm.fork();
    const { snapshot } = await vm.runtime.branch(source, { tag: `${vm.tag}-held`, hold: true });
    await source.kill();
    await vm.runtime.zygotes.make(vm.snapshot);
    const [first] = held();
    await vm.runtime.zygotes.make(snapshot);
    assert.equal(vm.runtime.zygotes.refusal, null);
    assert.equal(vm.runtime.zygotes.size, 1, "the last one is kept");
    await until(() => held().length === 1 && held()[0] !== first);
    assert.equal((await vm.fork(snapshot)).vm.startedBy, "clone");
    for (const sandbox of vm.runtime.sandboxes) await sandbox.kill();
    await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    assert.deepEqual(held(), [], "it ends with its snapshot");
  });
});

describe("zygotes of a daemon", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start();
    await warmSnapshot(daemon.home, "disky", DISK_WARM);
  });
  after(async () => daemon[Symbol.asyncDispose]());

  const held = (): number[] => zygotesOf(join(daemon.home.run, "daemon"));

  it("are made at once where a pool is asked for: no VMM waits", async () => {
    await daemon.controller.updateSnapshot("disky", { pool: 3 });
    assert.equal((await daemon.controller.status()).pool_waiting, 0);
    assert.deepEqual([held().length, vmmsOf(join(daemon.home.run, "daemon")).length], [1, 0]);
    const sandboxes = await daemon.controller.spawnSandboxes("disky", { n: 2 });
    assert.deepEqual(new Set(sandboxes.map(({ started_by }) => started_by)), new Set(["clone"]));
  });

  it("end when the daemon is killed; their clones continue with their disks, and the next daemon makes new ones", async () => {
    const { controller } = daemon;
    const sandboxes = await controller.listSandboxes();
    const [first] = sandboxes;
    assert.ok(first && sandboxes.length === 2);
    const sh = async (id: string, command: string): Promise<string> => (await controller.execCommand(id, ["sh", "-c", command])).stdout;
    for (const { id } of sandboxes) await sh(id, `echo ${id} > /data/mine; sync`);
    await controller.branchSandbox(first.id, { tag: "before" });
    const zygotes = held();
    // one of the snapshot, and the copy of the branch's source, unless a busy host did not let it be copied in time
    assert.ok(zygotes.length === 1 || zygotes.length === 2);
    const init = initOf(first.pid ?? 0);
    await daemon.kill9();
    assert.deepEqual(await waitUntilGone(zygotes), []);
    await daemon.up();
    const adopted = await controller.listSandboxes();
    const facts = (list: typeof sandboxes): Record<string, unknown> =>
      Object.fromEntries(list.map(({ id, pid, started_by }) => [id, [pid, started_by]]));
    assert.deepEqual(facts(adopted), facts(sandboxes));
    for (const { id } of sandboxes) assert.equal(await sh(id, "echo 3 > /proc/sys/vm/drop_caches; cat /data/mine"), `${id}\n`);
    await controller.branchSandbox(first.id, { tag: "later" });
    const [tip] = await controller.spawnSandboxes("later");
    assert.ok(tip);
    assert.equal(await sh(tip.id, "cat /data/mine"), `${first.id}\n`);
    await until(async () => (await controller.spawnSandboxes("disky"))[0]?.started_by === "clone");
    await controller.killSandboxes({ all: true });
    // with their snapshots the copies of their sources end
    for (const tag of ["later", "before"]) await controller.deleteSnapshot(tag);
    assert.deepEqual(await waitUntilGone([init]), [], "the family of the killed daemon ends with its last member");
  });
});

/** Checks the active layers, of VMs that are paused for it */
async function assertSound(sandboxes: readonly Sandbox[]): Promise<void> {
  for (const one of sandboxes) {
    await one.pause();
    const active = one.disk?.spec.active.path ?? "";
    await run("qemu-img", ["check", "-U", "-f", "qcow2", active]);
    await one.resume();
  }
}

function identity(): { id: string; machineId: string; bootId: string } {
  const id = `sb-${"a".repeat(16)}`;
  return { id, machineId: "0".repeat(32), bootId: "00000000-0000-4000-8000-000000000000" };
}

function namespaceOf(pid: number | string): string {
  return readFileSync(`/proc/${pid}/status`, "utf8").match(/^NSpid:.*$/m)?.[0] ?? "";
}

/** The first process of the pid namespace, by its host pid */
function initOf(pid: number): number {
  return relativesOf(pid).find((other) => /\s1$/.test(namespaceOf(other))) ?? 0;
}

/** The zygote of a clone */
function zygoteOf(pid: number): number {
  const isHeld = (other: number): boolean => !/^TracerPid:\s+0$/m.test(readFileSync(`/proc/${other}/status`, "utf8"));
  return relativesOf(pid).find(isHeld) ?? 0;
}

function relativesOf(pid: number): number[] {
  const own = readlinkSync(`/proc/${pid}/ns/pid`);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((other) => {
      try {
        return readlinkSync(`/proc/${other}/ns/pid`) === own;
      } catch {
        return false; // the process has just ended
      }
    });
}
