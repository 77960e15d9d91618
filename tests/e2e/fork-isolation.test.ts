// Isolation of children: memory, files, processes, randomness, identity, clock.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile, truncate } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { pipeline } from "node:stream/promises";
import { assertDistinct, clockTolerance, rejection, sh, value } from "../helpers/guest.ts";
import { mappingsOf, nextVmm, tracesOf, vmmsOf } from "../helpers/host.ts";
import { copySnapshot, NODE_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

const CHILDREN = 4;
const HUGE_PAGE_BYTES = 2n * 1024n * 1024n;

async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

async function all<V>(children: readonly Sandbox[], ask: (child: Sandbox) => Promise<V>): Promise<V[]> {
  return Promise.all(children.map(ask));
}

describe("children of one snapshot", () => {
  let vm: TestVm;
  let children: Sandbox[];
  let rootfsHash: string;
  let forkedAt: number;
  let forkMs: number;

  before(async () => {
    vm = await startVm("isolation");
    rootfsHash = await sha256OfFile((await vm.runtime.images.get(vm.snapshot.manifest.imageId)).rootfsPath);
    forkedAt = Date.now();
    children = await vm.forkMany(CHILDREN);
    forkMs = Date.now() - forkedAt;
  });
  after(async () => vm.close());

  it("have their own ids and identity", () => {
    assert.equal(children.length, CHILDREN);
    assertDistinct(
      "id",
      children.map((child) => child.id),
    );
    for (const child of children) {
      assert.equal(child.isolation, vm.runtime.accelerator.accelerator === "kvm" ? "kvm" : "emulated");
      assert.equal(child.certificate.disk, "private-overlay");
      assert.equal(child.certificate.memory, "private-copy-on-write");
      assert.equal(child.certificate.guest_rng, "reseeded");
    }
  });

  it("have a guest kernel that does not mistake a busy host for a broken timer", async () => {
    assert.match(await sh(children[0]!, "cat /proc/cmdline"), /(^| )no_timer_check( |$)/);
  });

  it("do not see each other's memory", async () => {
    const [first, ...others] = children;
    assert.ok(first);
    assert.equal(await value(first, "warmed = 'changed by the first'; warmed"), "changed by the first");
    assert.deepEqual(
      await all(others, async (child) => value(child, "warmed")),
      others.map(() => [1, 2]),
    );
    assert.equal(await value(first, "warmed"), "changed by the first");
  });

  it("do not see each other's files, and do not change the image", async () => {
    for (const [i, child] of children.entries()) await child.files.write("/etc/marker", `written by child ${i}`);
    const read = await all(children, async (child) => (await child.files.read("/etc/marker")).toString());
    assert.deepEqual(
      read,
      children.map((_, i) => `written by child ${i}`),
    );
    await sh(children[0]!, "rm -rf /usr/share/zoneinfo /etc/debian_version; echo gone > /etc/os-release");
    assert.match(await sh(children[1]!, "cat /etc/os-release"), /Debian/);
    assert.match(await sh(children[1]!, "cat /etc/debian_version"), /^\d+/);
    const image = await vm.runtime.images.get(vm.snapshot.manifest.imageId);
    assert.equal(await sha256OfFile(image.rootfsPath), rootfsHash);
    assert.equal(rootfsHash, image.manifest.rootfs.sha256);
  });

  it("do not see each other's processes", async () => {
    const [first, second] = children;
    assert.ok(first && second);
    const running = await first.start(["sleep", "4242"]);
    const list = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null; echo; done";
    assert.match(await sh(first, list), /^sleep 4242 $/m);
    assert.doesNotMatch(await sh(second, list), /^sleep 4242 $/m);
    assert.ok((await first.processes.list()).some(({ argv, exit }) => !exit && argv.join(" ") === "sleep 4242"));
    assert.ok(!(await second.processes.list()).some(({ argv }) => argv.join(" ") === "sleep 4242"));
    running.signal("SIGKILL");
    assert.equal((await running.finish()).signal, "SIGKILL");
  });

  const sources = {
    "boot id": "open('/proc/sys/kernel/random/boot_id').read()",
    "kernel uuid": "open('/proc/sys/kernel/random/uuid').read()",
    "os.urandom": "os.urandom(16).hex()",
    "random.random()": "random.random()",
    "numpy.random.rand()": "float(numpy.random.rand())",
    "numpy.random.Generator": "float(rng.random())",
    "random.Random": "inner[0].random()",
    uuid4: "str(uuid.uuid4())",
    "node of uuid1": "uuid.uuid1().node",
    "uuid.getnode()": "uuid.getnode()",
    "name of a temporary file": "tempfile.mktemp()",
    "key of multiprocessing": "multiprocessing.current_process().authkey.hex()",
    "key in a process of multiprocessing": `(lambda ends: (multiprocessing.get_context('fork').Process(
      target=lambda: ends[1].send(multiprocessing.current_process().authkey.hex())).start(), ends[0].recv())[1])(multiprocessing.Pipe(False))`,
    "host name": "socket.gethostname()",
    "machine id": "open('/etc/machine-id').read()",
    "boot id in a procfs of its own": `__import__('subprocess').check_output(${JSON.stringify([
      ..."unshare --mount --pid --fork --mount-proc cat".split(" "),
      "/proc/sys/kernel/random/boot_id",
    ])}).decode()`,
  };
  for (const [what, code] of Object.entries(sources)) {
    it(`have their own ${what}`, async () => {
      assertDistinct(what, await all(children, async (child) => value(child, code)));
    });
  }

  it("match their certificates", async () => {
    for (const child of children) {
      const { identity, kernels, clock_skew_ms: skew } = child.certificate;
      assert.equal(await sh(child, "hostname 2>/dev/null || cat /proc/sys/kernel/hostname"), identity.hostname);
      assert.equal(identity.hostname, child.id);
      assert.equal(await sh(child, "cat /etc/machine-id"), identity.machine_id);
      assert.equal(await sh(child, "cat /proc/sys/kernel/random/boot_id"), identity.boot_id);
      assert.equal(await sh(child, "cat /run/forkd/sandbox-id"), child.id);
      assert.equal(kernels["python"]?.state, "reseeded");
      assert.ok(
        ["random", "numpy.random"].every((name) => kernels["python"]?.generators.includes(name)),
        JSON.stringify(kernels),
      );
      // the clock was set during the fork
      assert.ok(skew >= 0 && skew <= forkMs, `clock skew ${skew} ms`);
    }
  });

  it("have the current time of the host", async () => {
    for (const child of children) {
      const from = Date.now();
      const guestMs = Number(await value(child, "time.time()")) * 1000;
      const tolerance = clockTolerance(child, forkedAt);
      const [earliest, latest] = [from - tolerance, Date.now() + tolerance];
      assert.ok(guestMs >= earliest && guestMs <= latest, `the guest's ${guestMs} is not within ${earliest} and ${latest}`);
    }
  });

  it("have memory that is aligned for huge pages and not merged by the host's kernel", async () => {
    const child = children[0]!;
    const smaps = await readFile(`/proc/${child.vm.pid}/smaps`, "utf8");
    const entry = smaps.split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/).find((text) => text.split("\n")[0]?.endsWith(child.memoryPath));
    assert.ok(entry, "its memory is mapped");
    assert.equal(Number.parseInt(entry, 16) % (2 * 1024 * 1024), 0);
    assert.doesNotMatch(/^VmFlags: .*$/m.exec(entry)?.[0] ?? "", / mg( |$)/);
  });

  it("map the memory of their snapshot privately, and may use huge pages", async () => {
    for (const child of children) {
      const mappings = await mappingsOf(child.vm.pid, child.memoryPath);
      assert.ok(mappings.length > 0, "the memory file is not mapped");
      for (const { permissions } of mappings) assert.match(permissions, /^..[-x]p$/);
      assert.equal((mappings[0]?.start ?? 1n) % HUGE_PAGE_BYTES, 0n);
    }
    const usage = await children[0]!.memoryUsage();
    assert.ok(usage.privateGuestBytes > 0 && usage.privateGuestBytes < 128 * 1024 * 1024, JSON.stringify(usage));
  });

  it("get the snapshot's environment and their own", async () => {
    const [outcome] = await vm.runtime.fork(vm.tag, { env: { OWN: "a value = with 'quotes'" } });
    const child = outcome?.sandbox;
    assert.ok(child);
    assert.equal(await sh(child, 'echo "$FROM_SNAPSHOT:$OWN"'), "yes:a value = with 'quotes'");
    assert.equal(await sh(children[0]!, 'echo "$FROM_SNAPSHOT:$OWN"'), "yes:");
    await child.kill();
    await child.kill();
    assert.equal(child.alive, false);
    assert.ok(!vm.runtime.sandboxes.includes(child));
    await rejection(child.exec(["true"]), "VMM_EXITED");
    await rejection(child.eval("1"), "VMM_EXITED");
  });

  it("are refused for invalid counts", async () => {
    for (const n of [0, -1, 1001, 1.5, Number.NaN]) await rejection(vm.runtime.fork(vm.tag, { n }), "BAD_REQUEST");
  });

  it("cannot be forked from a missing snapshot", async () => {
    await rejection(vm.runtime.fork("no-such-snapshot"), "NOT_FOUND");
    for (const name of ["../x", "a/b/c", "/b", "a/", "", "x".repeat(65), ".hidden", "x.tmp"])
      await rejection(vm.runtime.fork(name), "BAD_NAME");
  });

  it("cannot be branched or frozen under an invalid name, and nothing is created", async () => {
    const earlier = await tracesOf(vm.home);
    for (const tag of ["../x", "a/b/c", "/b", "a/", "", "x".repeat(65), "a\nb", "a.reserved.tmp"]) {
      await rejection(vm.runtime.branch(children[0]!, tag), "BAD_NAME");
      await rejection(vm.runtime.createSnapshot({ tag, image: "python-numpy" }), "BAD_NAME");
    }
    assert.deepEqual(await tracesOf(vm.home), earlier);
  });

  it("cannot be made from a damaged device state, and nothing remains", async () => {
    const tag = await copySnapshot(vm, "cut", async (dir) => truncate(`${dir}/device.state`, 2000));
    const vmms = vmmsOf(vm.runtime.runDir);
    const outcomes = await vm.runtime.fork(tag, { n: 2 });
    for (const { error } of outcomes) {
      assert.equal(error?.code, "FORK_FAILED", error?.message);
      assert.match(error?.message ?? "", /load of migration failed|qemu-system/i);
    }
    const error = await rejection(vm.runtime.fork(tag, { n: 2, allOrNothing: true }), "FORK_FAILED");
    assert.match(error.message, /load of migration failed|qemu-system/i);
    assert.deepEqual(vmmsOf(vm.runtime.runDir), vmms);
    assert.equal(vm.runtime.sandboxes.length, children.length);
    await vm.runtime.removeSnapshot(tag);
  });

  it("all fail when one does, if all or nothing was requested", async () => {
    const vmms = vmmsOf(vm.runtime.runDir);
    const stop = new AbortController();
    // also kills the restored child that replaces an ended clone
    const killing = (async () => {
      for (;;) process.kill(await nextVmm(vm.runtime.runDir, stop.signal), "SIGKILL");
    })();
    await rejection(vm.runtime.fork(vm.tag, { n: 3, allOrNothing: true }), "FORK_FAILED");
    stop.abort();
    await assert.rejects(killing, /no VMM was started/);
    assert.deepEqual(vmmsOf(vm.runtime.runDir), vmms);
    assert.deepEqual(vm.runtime.sandboxes.map(({ id }) => id).toSorted(), children.map(({ id }) => id).toSorted());
  });
});

describe("children with a node kernel", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("isolation-node", { spec: NODE_WARM });
  });
  after(async () => vm.close());

  it("have their own random numbers", async () => {
    const children = await vm.forkMany(3);
    assertDistinct("Math.random()", await all(children, async (child) => value(child, "Math.random()")));
    assertDistinct("randomUUID()", await all(children, async (child) => value(child, "crypto.randomUUID()")));
    assertDistinct("randomBytes()", await all(children, async (child) => value(child, "crypto.randomBytes(16).toString('hex')")));
    for (const child of children) assert.equal(child.certificate.kernels["node"]?.state, "reseeded");
  });
});
