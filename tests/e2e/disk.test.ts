// Snapshots with a disk: forks and branches capture it consistently at any moment, and share its layers.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { after, afterEach, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { Runtime } from "@forkd/runtime";
import { rejection, sh, value } from "../helpers/guest.ts";
import { tracesOf } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { SmallHome } from "../helpers/small-home.ts";
import { until } from "../helpers/until.ts";
import { DISK_MIB, DISK_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);
const MIB = 1024 * 1024;
const notRoot = process.getuid?.() === 0 ? false : "only root can mount a small file system";
/** Makes the next read come from the disk */
const FRESH = "sync; echo 3 > /proc/sys/vm/drop_caches";

/**
 * Writes files in a loop and records their hashes in a table in memory. Every third file is synced, every fifth is
 * removed; folders are created and removed.
 */
const WRITER = `
import hashlib, json, os, random, shutil
os.makedirs("/data/w", exist_ok=True)
open("/tmp/pid", "w").write(str(os.getpid()))
turn = 0
while True:
    turn += 1
    name = "/data/w/%d" % random.randrange(60)
    content = os.urandom(random.randrange(1, 50000))
    with open(name + ".new", "wb") as f:
        f.write(b"%012d" % turn + content)
        f.flush()
        if turn % 3 == 0: os.fsync(f.fileno())
    os.rename(name + ".new", name)
    digest = hashlib.sha256(content).hexdigest()
    with open("/tmp/log", "a") as log: log.write("%d %s %s\\n" % (turn, name, digest))
    if turn % 7 == 0:
        os.makedirs("/data/d/%d/e" % turn); open("/data/d/%d/e/f" % turn, "w").write("x" * turn)
        if turn > 70: shutil.rmtree("/data/d/%d" % (turn - 70), ignore_errors=True)
`;

/** Compares the table in memory with the disk; a write in progress may be newer than its entry */
const CHECK = `
import hashlib, os
last, turns = {}, 0
for line in open("/tmp/log"):
    if not line.endswith("\\n"): continue
    turn, name, digest = line.split(); last[name] = (int(turn), digest); turns = int(turn)
wrong = []
for name, (turn, digest) in last.items():
    data = open(name, "rb").read()
    same = int(data[:12]) == turn and hashlib.sha256(data[12:]).hexdigest() == digest
    if not same and int(data[:12]) != turns + 1: wrong.append(name)
[len(last), turns, wrong]
`;

async function startWriter(sandbox: Sandbox): Promise<void> {
  await sandbox.files.write("/root/writer.py", WRITER);
  await sandbox.start(["python3", "/root/writer.py"]);
  await until(async () => Number(await sh(sandbox, "cat /tmp/log 2>/dev/null | wc -l")) > 20);
}

/** Stops the writer and compares */
async function checkWriter(sandbox: Sandbox, what: string): Promise<number> {
  await sh(sandbox, "kill -STOP $(cat /tmp/pid)");
  await sh(sandbox, FRESH);
  const [files, turns, wrong] = (await value(sandbox, CHECK)) as [number, number, string[]];
  assert.deepEqual(wrong, [], what);
  assert.ok(files > 10, `${what}: ${files} files`);
  await sh(sandbox, "dmesg | grep -i 'ext4-fs.*error' && exit 1; true");
  return turns;
}

describe("a disk", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("disk", { spec: DISK_WARM });
  });
  afterEach(async () => {
    await Promise.all(vm.runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
  });
  after(async () => vm.close());

  const branch = async (source: Sandbox, suffix: string): Promise<Snapshot> =>
    (await vm.runtime.branch(source, `${vm.tag}-${suffix}`)).snapshot;
  const remove = async (...snapshots: Snapshot[]): Promise<void> => {
    for (const { manifest } of snapshots) await vm.runtime.removeSnapshot(manifest.id);
  };

  it("keeps attributes of files, and setting one needs write permission", async () => {
    const [child] = await vm.forkMany(1);
    assert.ok(child);
    const noted = { prefix: "user.test.", attributes: new Map([["by", "root"]]) };
    await child.files.setAttributes("/data/kept", noted);
    await assert.rejects(child.files.setAttributes("/data/kept", noted, { user: "daemon" }), { code: "FILE_DENIED" });
    const found = await child.files.attributes(["/data/late", "/data/kept"], noted.prefix, { user: "daemon" });
    assert.deepEqual(found, [new Map(), noted.attributes]);
  });

  it("has in every child the content of the freeze, and children diverge independently", async () => {
    const children = await vm.forkMany(3);
    for (const [at, child] of children.entries()) {
      assert.equal(child.certificate.disk, "private-layer");
      assert.equal(await sh(child, `${FRESH}; cat /data/kept /data/late`), "frozen\nunsynced");
      await sh(child, `echo child ${at} > /data/kept; echo ${at} > /usr/own-${at}; ${FRESH}`);
    }
    for (const [at, child] of children.entries())
      assert.equal(await sh(child, "cat /data/kept; echo /usr/own-*"), `child ${at}\n/usr/own-${at}`);
  });

  it("has the requested size, and uses no guest memory", async () => {
    const child = await vm.fork();
    const [total, free] = (await sh(child, "df -m / | awk 'END { print $2, $4 }'")).split(" ").map(Number);
    assert.ok(total && total > DISK_MIB * 0.9 && total <= DISK_MIB, `${total} MiB`);
    assert.ok(free && free > DISK_MIB * 0.8, `${free} MiB free`);
    assert.match(await sh(child, "mount | grep -E ' on /(tmp|run) '"), /^tmpfs on \/(run|tmp).*\ntmpfs on \/(run|tmp)/);
    const shmem = "awk '/^Shmem:/ { print $2 }' /proc/meminfo";
    const before = Number(await sh(child, shmem));
    await sh(child, `head -c ${60 * MIB} /dev/urandom > /data/large; ${FRESH}`);
    assert.ok(Number(await sh(child, shmem)) - before < 1024);
    assert.ok(((await child.disk?.ownBytes()) ?? 0) > 60 * MIB);
    await sh(child, `rm /data/large; ${FRESH}`);
    assert.ok(((await child.disk?.ownBytes()) ?? 0) < 30 * MIB, "what is deleted is given back to the host");
  });

  it("from the pool is private to each child too", async () => {
    await vm.runtime.pool.resize(vm.snapshot, 2);
    const [a, b] = await vm.forkMany(2);
    assert.ok(a && b);
    await sh(a, `echo a > /data/kept; ${FRESH}`);
    assert.equal(await sh(b, `${FRESH}; cat /data/kept`), "frozen");
    await vm.runtime.pool.resize(vm.snapshot, 0);
  });

  it("is consistent with memory in a branch of a branch under heavy writes", async () => {
    const source = await vm.fork();
    await startWriter(source);
    const one = await branch(source, "busy-1");
    const child = await vm.fork(one);
    await until(async () => Number(await sh(child, "wc -l < /tmp/log")) > 60);
    const two = await branch(child, "busy-2");
    const grandchild = await vm.fork(two);
    const three = await branch(source, "busy-3");
    const sibling = await vm.fork(three);
    for (const [what, sandbox] of Object.entries({ source, child, grandchild, sibling })) {
      const turns = await checkWriter(sandbox, what);
      assert.ok(turns > 20, `${what}: ${turns} turns`);
    }
    await checkFileSystem(grandchild, await branch(grandchild, "busy-4"));
    await Promise.all(vm.runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
    await remove(await vm.runtime.snapshots.get(`${vm.tag}-busy-4`), three, two, one);
  });

  /** Checks the layers without the memory of the snapshot, after a sync in the guest */
  async function checkFileSystem(sandbox: Sandbox, { manifest, layers }: Snapshot): Promise<void> {
    assert.ok(manifest.disk && layers.length > 2);
    const compacted = await vm.runtime.compact(await vm.runtime.snapshots.get(manifest.tag), { tag: `${vm.tag}-flat` });
    const [flat] = compacted.layers;
    assert.ok(flat);
    await run("e2fsck", ["-fn", flat.path], { env: { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` } });
    await remove(compacted);
    assert.equal(await sh(sandbox, "echo alive"), "alive");
  }

  it("that is full is an error inside the guest only", async () => {
    const [full, sibling] = await vm.forkMany(2);
    assert.ok(full && sibling);
    const { code, stderr } = await full.exec(["dd", "if=/dev/urandom", "of=/data/fill", "bs=1M", "conv=fsync"], { timeoutMs: patience() });
    assert.notEqual(code, 0);
    assert.match(stderr.toString(), /No space left on device/);
    const own = (await full.disk?.ownBytes()) ?? 0;
    assert.ok(own > 0.8 * DISK_MIB * MIB && own < 1.05 * DISK_MIB * MIB, `${own} bytes`);
    await sh(sibling, `head -c ${20 * MIB} /dev/urandom > /data/mine; ${FRESH}`);
    const snapshot = await branch(full, "full");
    const child = await vm.fork(snapshot);
    for (const sandbox of [full, child]) {
      assert.equal(await value(sandbox, "1 + 1"), 2);
      await sh(sandbox, `rm /data/fill; echo room > /data/room; ${FRESH}; grep room /data/room`);
    }
    await child.kill();
    await remove(snapshot);
  });

  it("that the host cannot write is an I/O error in the guest, without other effects", { skip: notRoot }, async () => {
    await using small = await SmallHome.make(vm.home, vm.snapshot, 1100);
    await using runtime = await Runtime.start({ home: small.home });
    const [writer, sibling] = (await runtime.fork(vm.tag, { n: 2, allOrNothing: true })).flatMap(({ sandbox }) => sandbox ?? []);
    assert.ok(writer && sibling);
    await sh(sibling, `echo before > /data/before; ${FRESH}`);
    const earlier = await tracesOf(small.home);
    const free = await small.fill(MIB);
    const { code, stderr } = await writer.exec(["dd", "if=/dev/urandom", "of=/data/fill", "bs=1M", "count=30", "conv=fsync"]);
    assert.notEqual(code, 0);
    assert.match(stderr.toString(), /Input\/output error|Read-only file system/);
    for (const sandbox of [writer, sibling]) {
      assert.equal(await value(sandbox, "1 + 1"), 2);
      assert.ok(await sandbox.vm.isRunning());
    }
    assert.equal(await sh(sibling, "cat /data/before /data/kept"), "before\nfrozen");
    await rejection(runtime.branch(sibling, "full"), ["NO_SPACE", "BRANCH_FAILED"]);
    // a clone needs less space for its layer than a restored child, and may still have enough
    const [more] = await runtime.fork(vm.tag, { n: 1 });
    if (more?.sandbox) {
      assert.equal(await value(more.sandbox, "1 + 1"), 2);
      await more.sandbox.kill();
    } else assert.match(more?.error?.code ?? "", /^(?:NO_SPACE|FORK_FAILED)$/);
    assert.deepEqual(await tracesOf(small.home), earlier, "an incomplete file is left");
    await free();
    await sh(sibling, `echo after > /data/after; ${FRESH}; grep after /data/after`);
    const { snapshot } = await runtime.branch(sibling, "room");
    const child = await runtime.forkOne(snapshot);
    assert.equal(await sh(child, `${FRESH}; cat /data/before /data/after`), "before\nafter");
  });

  async function forkStartedBy(how: Sandbox["vm"]["startedBy"]): Promise<Sandbox> {
    if (how === "clone") await vm.runtime.keepReady(vm.snapshot, 1);
    const [fork] = await vm.runtime.fork(vm.snapshot, { n: 1, restored: how === "restore" });
    assert.equal(fork?.sandbox?.vm.startedBy, how);
    return fork.sandbox;
  }

  /** All names of a file in the store */
  async function namesOf(path = ""): Promise<string> {
    return (await run("find", [vm.home.root, "-samefile", path])).stdout;
  }

  it("has layers that are stored once, and are removed with the last snapshot that needs them", async () => {
    const source = await vm.fork();
    await sh(source, `echo 1 > /data/one; ${FRESH}`);
    const one = await branch(source, "share-1");
    await sh(source, `echo 2 > /data/two; ${FRESH}`);
    const two = await branch(source, "share-2");
    const links = async ({ layers }: Snapshot): Promise<number[]> => Promise.all(layers.map(async ({ path }) => (await stat(path)).nlink));
    assert.equal(one.layers.length, 2);
    assert.equal(two.layers.length, 3);
    // base layer: in three snapshots; first frozen layer: in two and the source; second: in one and the source
    assert.deepEqual(await links(two), [3, 3, 2], await namesOf(two.layers[0]?.path));
    await remove(one);
    assert.deepEqual(await links(two), [2, 2, 2]);
    await source.kill();
    assert.deepEqual(await links(two), [2, 1, 1]);
    const child = await vm.fork(two);
    assert.equal(await sh(child, `${FRESH}; cat /data/one /data/two`), "1\n2");
    await rejection(vm.runtime.removeSnapshot(two.manifest.id), "IN_USE");
    await child.kill();
    await remove(two);
    assert.deepEqual(await links(vm.snapshot), [1]);
  });

  it("is one layer in a compacted copy, which builds on nothing", async () => {
    const source = await vm.fork();
    const line: Snapshot[] = [];
    for (const step of [1, 2, 3]) {
      await sh(source, `echo ${step} > /data/step-${step}; ${FRESH}`);
      line.push(await branch(source, `long-${step}`));
    }
    await source.kill();
    const last = line.at(-1);
    assert.ok(last);
    const short = await vm.runtime.compact(last, { tag: `${vm.tag}-short` });
    assert.equal(short.layers.length, 1);
    assert.equal(short.manifest.memory.kind, "base");
    await remove(...line);
    const child = await vm.fork(short);
    assert.equal(await sh(child, `${FRESH}; cat /data/kept /data/step-*`), "frozen\n1\n2\n3");
    await child.kill();
    await remove(short);
  });

  for (const startedBy of ["restore", "clone"] as const)
    it(`has a bounded number of layers after any number of branches of a source that began as a ${startedBy}`, async () => {
      const source = await forkStartedBy(startedBy);
      const line: Snapshot[] = [];
      const own = async (): Promise<number> => (await source.vm.disk.known()).length;
      let highest = 0;
      for (let step = 0; step < 20; step++) {
        await sh(source, `echo ${step} > /data/step-${step}; sync`);
        line.push(await branch(source, `many-${step}`));
        highest = Math.max(highest, line.at(-1)?.layers.length ?? 0);
      }
      assert.equal(highest, 16);
      assert.ok((await own()) < 10, "the source's own stack is low again");
      const all = Array.from({ length: 20 }, (_, step) => step).join("\n");
      const list = `${FRESH}; cat $(seq -f /data/step-%.0f 0 19)`;
      assert.equal(await sh(source, list), all);
      const child = await vm.fork(line.at(-1));
      assert.equal(await sh(child, list), all);
      const older = await vm.fork(line[9]);
      assert.equal(await sh(older, `${FRESH}; cat /data/step-9; ls /data/step-10 2>/dev/null || echo none`), "9\nnone");
      await Promise.all(vm.runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
      await remove(...line);
    });

  it("of a failed branch is intact in the source, and no file remains", async () => {
    const source = await vm.fork();
    await sh(source, "echo before > /data/branch");
    const earlier = await tracesOf(vm.home);
    const taken = await branch(source, "taken");
    await rejection(vm.runtime.branch(source, taken.manifest.tag), "EXISTS");
    // the copy of a VMM would save its own device state
    source.forkObstacle = "the branch is taken from its own VMM";
    // before and after the freeze
    const methods: Record<string, () => Promise<void>> = source.vm as object as Record<string, () => Promise<void>>;
    for (const step of ["prepare", "saveDeviceState"]) {
      methods[step] = async () => Promise.reject(new Error("injected failure"));
      await rejection(vm.runtime.branch(source, `${vm.tag}-cut`), "BRANCH_FAILED");
      delete methods[step];
      await sh(source, `echo ${step} >> /data/branch; ${FRESH}`);
    }
    source.forkObstacle = null;
    const good = await branch(source, "good");
    const child = await vm.fork(good);
    assert.equal(await sh(child, `${FRESH}; cat /data/branch`), "before\nprepare\nsaveDeviceState");
    await Promise.all([source, child].map(async (sandbox) => sandbox.kill()));
    await remove(good, taken);
    const { disks, ...rest } = earlier;
    const { disks: left, ...now } = await tracesOf(vm.home);
    assert.deepEqual(now, rest);
    assert.deepEqual(left, []);
    assert.equal(disks.length, 1);
  });
});
