// Each child is a machine of its own: memory, files, processes, randomness, identity, clock.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { truncate } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { pipeline } from "node:stream/promises";
import { assertDistinct, rejection, sh, value } from "../helpers/guest.ts";
import { mappingsOf, nextVmm, tracesOf, vmmsOf } from "../helpers/host.ts";
import { copySnapshot, NODE_IMAGE, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/daemon";

const CHILDREN = 4;
const CLOCK_BOUND_MS = 50;

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

  before(async () => {
    vm = await startVm("isolation", {
      code: "import numpy, random, os, uuid, time, socket; shared = 'warm'",
      env: { FROM_SNAPSHOT: "yes" },
    });
    rootfsHash = await sha256OfFile((await vm.runtime.images.get(vm.snapshot.manifest.imageId)).rootfsPath);
    children = await vm.forkMany(CHILDREN);
  });
  after(async () => vm.close());

  it("have ids of their own and know what they are", () => {
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

  it("do not see each other's memory", async () => {
    const [first, ...others] = children;
    assert.ok(first);
    assert.equal(await value(first, "shared = 'changed by the first'; shared"), "changed by the first");
    assert.deepEqual(
      await all(others, async (child) => value(child, "shared")),
      others.map(() => "warm"),
    );
    assert.equal(await value(first, "shared"), "changed by the first");
  });

  it("do not see each other's files, and leave the image as it was", async () => {
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
    uuid4: "str(uuid.uuid4())",
    "host name": "socket.gethostname()",
    "machine id": "open('/etc/machine-id').read()",
  };
  for (const [what, code] of Object.entries(sources)) {
    it(`have their own ${what}`, async () => {
      assertDistinct(what, await all(children, async (child) => value(child, code)));
    });
  }

  it("are what their certificates say", async () => {
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
      assert.ok(skew >= 0 && skew < CLOCK_BOUND_MS, `clock skew ${skew} ms`);
    }
  });

  it("have the host's time", async () => {
    for (const child of children) {
      const earliest = Date.now() - CLOCK_BOUND_MS;
      const guestMs = Number(await value(child, "time.time()")) * 1000;
      const latest = Date.now() + CLOCK_BOUND_MS;
      assert.ok(guestMs >= earliest && guestMs <= latest, `the guest's ${guestMs} is not within ${earliest} and ${latest}`);
    }
  });

  it("map the memory of their snapshot privately", async () => {
    for (const child of children) {
      const mappings = await mappingsOf(child.vm.pid, child.memoryPath);
      assert.ok(mappings.length > 0, "the memory file is not mapped");
      for (const permissions of mappings) assert.match(permissions, /^..[-x]p$/);
    }
    const usage = await children[0]!.memoryUsage();
    assert.ok(usage.privateGuestBytes > 0 && usage.privateGuestBytes < 128 * 1024 * 1024, JSON.stringify(usage));
  });

  it("get the environment of the snapshot and their own", async () => {
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

  it("are refused in numbers that make no sense", async () => {
    for (const n of [0, -1, 1001, 1.5, Number.NaN]) await rejection(vm.runtime.fork(vm.tag, { n }), "BAD_REQUEST");
  });

  it("cannot be forked from what does not exist", async () => {
    await rejection(vm.runtime.fork("no-such-snapshot"), "NOT_FOUND");
    for (const name of ["../x", "a/b", "", "x".repeat(65), ".hidden", "x.tmp"]) await rejection(vm.runtime.fork(name), "BAD_NAME");
  });

  it("cannot be branched or frozen under a bad name, and nothing is made then", async () => {
    const earlier = await tracesOf(vm.home);
    for (const tag of ["../x", "a/b", "", "x".repeat(65), "a\nb", "a.reserved.tmp"]) {
      await rejection(vm.runtime.branch(children[0]!, tag), "BAD_NAME");
      await rejection(vm.runtime.createSnapshot({ tag, image: "python-numpy" }), "BAD_NAME");
    }
    assert.deepEqual(await tracesOf(vm.home), earlier);
  });

  it("cannot be made from a damaged device state, and nothing is left", async () => {
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

  it("all fail when one does and all or nothing was asked for", async () => {
    const vmms = vmmsOf(vm.runtime.runDir);
    const stop = new AbortController();
    const victim = nextVmm(vm.runtime.runDir, stop.signal).then((pid) => process.kill(pid, "SIGKILL"));
    await rejection(vm.runtime.fork(vm.tag, { n: 3, allOrNothing: true }), "FORK_FAILED");
    stop.abort();
    await victim;
    assert.deepEqual(vmmsOf(vm.runtime.runDir), vmms);
    assert.deepEqual(vm.runtime.sandboxes.map(({ id }) => id).toSorted(), children.map(({ id }) => id).toSorted());
  });
});

describe("children with a node kernel", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("isolation-node", { image: NODE_IMAGE, code: "const crypto = require('node:crypto'); Math.random()" });
  });
  after(async () => vm.close());

  it("have random numbers of their own", async () => {
    const children = await vm.forkMany(3);
    assertDistinct("Math.random()", await all(children, async (child) => value(child, "Math.random()")));
    assertDistinct("randomUUID()", await all(children, async (child) => value(child, "crypto.randomUUID()")));
    assertDistinct("randomBytes()", await all(children, async (child) => value(child, "crypto.randomBytes(16).toString('hex')")));
    for (const child of children) assert.equal(child.certificate.kernels["node"]?.state, "reseeded");
  });
});
