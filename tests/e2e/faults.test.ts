// Failures of single VMs: isolated, with a reason, and without leftovers.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after, afterEach, before, describe, it } from "node:test";
import { countLeftovers, Runtime } from "@forkd/runtime";
import { rejection, sh, value } from "../helpers/guest.ts";
import { flatImages, isRunning, namesIn, nextVmm, ownChildren, tracesOf, vmmsOf, waitUntilGone } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { SmallHome } from "../helpers/small-home.ts";
import { until } from "../helpers/until.ts";
import { copySnapshot, startVm, type TestVm } from "../helpers/vm.ts";

import type { ForkdError, Sandbox } from "@forkd/runtime";

const MIB = 1024 * 1024;
const VICTIM = fileURLToPath(import.meta.resolve("../helpers/victim.ts"));
const notRoot = process.getuid?.() === 0 ? false : "only root can mount a small file system";

describe("a fault", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("faults");
  });
  afterEach(async () => {
    await Promise.all(vm.runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
    assert.deepEqual(vmmsOf(vm.runtime.runDir), []);
  });
  after(async () => vm.close());

  /** Connects the control channel in advance, so that the next branch reaches its pause */
  async function branchedBefore(): Promise<Sandbox> {
    const source = await vm.fork();
    await vm.runtime.branch(source, `${vm.tag}-ahead`);
    await vm.runtime.removeSnapshot(`${vm.tag}-ahead`);
    return source;
  }

  it("of one VMM while it forks fails that child only", async () => {
    const stop = new AbortController();
    const killed = nextVmm(vm.runtime.runDir, stop.signal).then((pid) => process.kill(pid, "SIGKILL"));
    // Restored children: the runtime would replace a killed clone, and no child would fail
    const outcomes = await vm.runtime.fork(vm.tag, { n: 3, restored: true });
    stop.abort();
    await killed;
    const errors = outcomes.flatMap(({ error }) => (error ? [error] : []));
    assert.deepEqual(
      errors.map(({ code }) => code),
      ["FORK_FAILED"],
    );
    assert.match(errors[0]?.message ?? "", /SIGKILL/);
    for (const { sandbox } of outcomes) if (sandbox) assert.equal(await value(sandbox, "1 + 1"), 2);
    assert.equal(vm.runtime.sandboxes.length, 2);
    assert.equal((await namesIn(vm.runtime.runDir)).filter((name) => name.startsWith("sb-")).length, 2);
  });

  it("that is an abort ends the children being made", async () => {
    const controller = new AbortController();
    const begun = nextVmm(vm.runtime.runDir, AbortSignal.timeout(patience())).then(() => controller.abort(new Error("no more")));
    const outcomes = await vm.runtime.fork(vm.tag, { n: 4, signal: controller.signal });
    await begun;
    for (const { error } of outcomes) assert.equal(error?.code, "CANCELLED", error?.message);
    assert.deepEqual(vmmsOf(vm.runtime.runDir), []);
    assert.ok(!(await namesIn(vm.runtime.runDir)).some((name) => name.startsWith("sb-")));
  });

  it("that closes the runtime during its work leaves no process or file", async () => {
    const runtime = await Runtime.start({ home: vm.home });
    const begun = nextVmm(runtime.runDir, AbortSignal.timeout(patience()));
    const forking = runtime.fork(vm.tag, { n: 4 });
    await begun;
    await runtime.close();
    for (const { sandbox } of await forking) assert.notEqual(sandbox?.alive, true);
    assert.equal(await countLeftovers(runtime.runDir), 0);
  });

  it("that removes a snapshot while it is forked: the child or the snapshot stays intact", async () => {
    const source = await vm.fork();
    for (const first of ["remove", "fork", "remove", "fork"] as const) {
      const tag = `${vm.tag}-contested`;
      await vm.runtime.branch(source, tag);
      const early = first === "fork" ? vm.runtime.forkOne(tag) : undefined;
      const removing = vm.runtime.removeSnapshot(tag);
      const [removed, forked] = await Promise.allSettled([removing, early ?? vm.runtime.forkOne(tag)]);
      const codes = [removed, forked].map((outcome) => (outcome.status === "rejected" ? (outcome.reason as ForkdError).code : "done"));
      assert.ok(["IN_USE,done", "done,NOT_FOUND"].includes(codes.join()), codes.join());
      if (forked.status === "fulfilled") {
        assert.equal(await value(forked.value, "1 + 1"), 2);
        await forked.value.kill();
        await vm.runtime.removeSnapshot(tag);
      }
    }
  });

  it("of a guest's kernel ends its sandbox at once with the reason", async () => {
    const child = await vm.fork();
    await rejection(child.exec(["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 1000"]), ["AGENT_LOST", "VMM_EXITED"]);
    const { failure, console } = await child.vm.exited;
    assert.equal(failure, "the guest restarted, as it does when its kernel panics");
    assert.match(console, /Kernel panic - not syncing: sysrq triggered crash/);
    await child.kill();
    await assert.rejects(child.ping(), /its kernel panics: Kernel panic - not syncing: sysrq triggered crash/);
  });

  it("of a guest's agent ends its sandbox with the agent's last line", async () => {
    const child = await vm.fork();
    await sh(child, "(sleep 1; echo 'forkd-agent: FATAL: a test' > /dev/console; echo o > /proc/sysrq-trigger) >/dev/null 2>&1 &");
    const { failure, console, code } = await child.vm.exited;
    assert.deepEqual([failure, code], ["the guest's agent failed", 0]);
    assert.match(console, /^forkd-agent: FATAL: a test/m);
    await child.kill();
  });

  it("of the VMM of a running sandbox ends that sandbox and fails pending calls", async () => {
    const [first, second] = await vm.forkMany(2);
    assert.ok(first && second);
    const running = rejection(first.exec(["sleep", "1000"]), ["AGENT_LOST", "VMM_EXITED"]);
    process.kill(first.vm.pid, "SIGKILL");
    await running;
    await first.kill();
    await rejection(first.exec(["true"]), "VMM_EXITED");
    assert.deepEqual(await namesIn(first.dir), []);
    assert.equal(await value(second, "1 + 1"), 2);
  });

  it("of the guest kernel, and with it of the agent, ends that sandbox only", async () => {
    const [child, sibling] = await vm.forkMany(2);
    assert.ok(child && sibling);
    await rejection(child.exec(["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60"]), ["AGENT_LOST", "VMM_EXITED"]);
    await child.vm.exited;
    await rejection(child.exec(["true"]), "VMM_EXITED");
    await rejection(vm.runtime.branch(child, `${vm.tag}-crashed`), "VMM_EXITED");
    await sibling.ping();
    await sibling.kill();
  });

  it("of the VMM in the middle of a branch leaves no snapshot", async () => {
    const source = await branchedBefore();
    const earlier = await tracesOf(vm.home);
    // the VMM is stopped, so the branch waits inside its pause until the kill
    process.kill(source.vm.pid, "SIGSTOP");
    const branching = rejection(vm.runtime.branch(source, `${vm.tag}-killed`), ["BRANCH_FAILED", "VMM_EXITED"]);
    await until(async () => (await namesIn(vm.home.staging)).length > earlier.staging.length);
    process.kill(source.vm.pid, "SIGKILL");
    await branching;
    await source.kill();
    await rejection(vm.runtime.snapshots.get(`${vm.tag}-killed`), "NOT_FOUND");
    assert.deepEqual(await tracesOf(vm.home), earlier);
  });

  it("that slows the VMM down while programs are held does not fail the branch", async () => {
    const source = await branchedBefore();
    await value(source, "kept = 42");
    const hold = source.holdProcesses.bind(source);
    source.holdProcesses = async () => {
      await hold();
      process.kill(source.vm.pid, "SIGSTOP");
      // longer than the pause limit of a branch without `hold`
      setTimeout(() => process.kill(source.vm.pid, "SIGCONT"), 4000);
    };
    const { snapshot, pauseMs } = await vm.runtime.branch(source, { tag: `${vm.tag}-slow`, hold: true });
    assert.ok(pauseMs > 3500, `${pauseMs} ms`);
    assert.equal(await value(source, "kept"), 42);
    const child = await vm.fork(snapshot);
    assert.equal(await value(child, "kept"), 42);
    // the flat image is removed with the last child
    await child.kill();
    await vm.runtime.removeSnapshot(`${vm.tag}-slow`);
  });

  for (const [when, prepare] of [
    ["before its control channel is open", async (): Promise<Sandbox> => vm.fork()],
    ["when its control channel is open", branchedBefore],
  ] as const) {
    it(`that stops the VMM's answers ${when} fails the branch, and the source continues`, async () => {
      const source = await prepare();
      await value(source, "kept = 42");
      const earlier = await tracesOf(vm.home);
      process.kill(source.vm.pid, "SIGSTOP");
      try {
        await rejection(vm.runtime.branch(source, `${vm.tag}-silent`), "BRANCH_FAILED");
      } finally {
        process.kill(source.vm.pid, "SIGCONT");
      }
      await source.ping(patience());
      assert.equal(await value(source, "kept"), 42);
      await rejection(vm.runtime.snapshots.get(`${vm.tag}-silent`), "NOT_FOUND");
      assert.deepEqual(await tracesOf(vm.home), earlier);
      const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-silent`);
      const child = await vm.fork(snapshot);
      assert.equal(await value(child, "kept"), 42);
      await child.kill();
      await vm.runtime.removeSnapshot(`${vm.tag}-silent`);
    });
  }

  it("of a full disk fails the branch, and the source continues", { skip: notRoot }, async () => {
    await using small = await SmallHome.make(vm.home, vm.snapshot, 900);
    await using runtime = await Runtime.start({ home: small.home });
    const source = await runtime.forkOne(vm.tag);
    await value(source, "data = os.urandom(30 * 1024 * 1024); kept = 'kept'");
    const earlier = await tracesOf(small.home);
    const free = await small.fill(10 * MIB);
    const error = await rejection(runtime.branch(source, "full"), ["NO_SPACE", "BRANCH_FAILED"]);
    assert.match(error.message, /space|ENOSPC/i);
    await source.ping(patience());
    assert.equal(await value(source, "kept"), "kept");
    await rejection(runtime.snapshots.get("full"), "NOT_FOUND");
    assert.deepEqual(await tracesOf(small.home), earlier);
    await free();
    const { snapshot } = await runtime.branch(source, "full");
    // the same for the flat image of a child
    const freeAgain = await small.fill(10 * MIB);
    await rejection(runtime.forkOne(snapshot), ["NO_SPACE", "FORK_FAILED"]);
    assert.deepEqual(await flatImages(small.home), []);
    await freeAgain();
    const child = await runtime.forkOne(snapshot);
    const hash = "__import__('zlib').crc32(data)";
    assert.equal(await value(child, hash), await value(source, hash));
  });

  it("of a disk without space for the device state fails the branch too", { skip: notRoot }, async () => {
    await using small = await SmallHome.make(vm.home, vm.snapshot, 300);
    await using runtime = await Runtime.start({ home: small.home });
    const source = await runtime.forkOne(vm.tag);
    const earlier = await tracesOf(small.home);
    const free = await small.fill(0);
    await rejection(runtime.branch(source, "full"), ["NO_SPACE", "BRANCH_FAILED"]);
    await source.ping(patience());
    assert.deepEqual(await tracesOf(small.home), earlier);
    await free();
    await runtime.branch(source, "full");
    assert.equal(await sh(source, "echo alive"), "alive");
  });

  for (const whom of ["the owner", "the owner and its warden", "the warden"] as const) {
    it(`that kills ${whom} at once ends all VMMs, and the next start removes their files`, async () => {
      const victim = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", VICTIM, vm.tag, "3"], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      try {
        const [line] = (await once(createInterface({ input: victim.stdout }), "line")) as [string];
        const { runDir, pids, wardens } = JSON.parse(line) as { runDir: string; pids: number[]; wardens: number[] };
        assert.equal(pids.length, 3);
        assert.equal(wardens.length, 1);
        assert.ok([...pids, ...wardens].every(isRunning));
        if (whom !== "the warden") victim.kill("SIGKILL");
        if (whom !== "the owner") for (const pid of wardens) process.kill(pid, "SIGKILL");
        assert.deepEqual(await waitUntilGone([...pids, ...wardens]), []);
        if (whom === "the warden") victim.kill("SIGKILL");
        if (victim.exitCode === null && victim.signalCode === null) await once(victim, "exit");
        await using next = await Runtime.start({ home: vm.home });
        assert.deepEqual(await namesIn(runDir), []);
        assert.ok(!(await namesIn(vm.home.run)).some((name) => runDir.endsWith(name)));
        assert.equal((await next.snapshots.get(vm.tag)).manifest.id, vm.snapshot.manifest.id);
      } finally {
        victim.kill("SIGKILL");
      }
    });
  }

  it("of the warden ends the sandboxes and fails later calls", async () => {
    const known = ownChildren("forkd-warden");
    await using runtime = await Runtime.start({ home: vm.home });
    const sandbox = await runtime.forkOne(vm.tag);
    const [warden] = ownChildren("forkd-warden").filter((pid) => !known.includes(pid));
    assert.ok(warden);
    process.kill(warden, "SIGKILL");
    await sandbox.vm.exited;
    await sandbox.kill();
    assert.equal(runtime.sandboxes.length, 0);
    assert.deepEqual(await waitUntilGone([sandbox.vm.pid]), []);
    await rejection(runtime.forkOne(vm.tag), ["WARDEN_FAILED", "FORK_FAILED"]);
  });

  for (const [what, text] of [
    ["is cut off", '{"version": 1, "id'],
    ["is empty", ""],
    ["is no object", "[]"],
    ["is of another version", '{"version": 2}'],
  ] as const) {
    it(`of a manifest that ${what} makes only that snapshot invalid`, async () => {
      const tag = await copySnapshot(vm, "broken", async (dir) => writeFile(join(dir, "manifest.json"), text));
      const error = await rejection(vm.runtime.fork(tag), "SNAPSHOT_INVALID");
      assert.ok(error.message.includes(tag), error.message);
      const tags = (await vm.runtime.snapshots.list()).map(({ manifest }) => manifest.tag);
      assert.ok(tags.includes(vm.tag) && !tags.includes(tag), "the others can still be listed");
      // a runtime that is alone in its run folder also cleans up after earlier ones
      const run = join(vm.home.run, "alone");
      await (await Runtime.start({ home: { ...vm.home, run } })).close();
      await rm(run, { recursive: true });
      await vm.runtime.removeSnapshot(tag);
      await rejection(vm.runtime.fork(tag), "NOT_FOUND");
    });
  }

  for (const [change, reason] of [
    [{ engineVersion: "99.0.0" }, /QEMU 99\.0\.0/],
    [{ accelerator: "kvm" }, /KVM/],
  ] as const) {
    it(`of a snapshot that this host cannot run is reported: ${JSON.stringify(change)}`, async (t) => {
      if ("accelerator" in change && vm.runtime.accelerator.accelerator === "kvm") return t.skip("KVM works on this host");
      const tag = await copySnapshot(vm, "foreign", async (_dir, manifest) => {
        Object.assign(manifest["shape"] as object, change);
      });
      const error = await rejection(vm.runtime.fork(tag), "SNAPSHOT_INCOMPATIBLE");
      assert.match(error.message, reason);
      await vm.runtime.removeSnapshot(tag);
    });
  }

  it("of a damaged delta is reported, and leaves no flat image", async () => {
    const source = await vm.fork();
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-damaged`);
    await writeFile(snapshot.memory, "not a delta");
    // a clone has the pages of the branch and reads no delta
    await rejection(vm.runtime.forkOne(snapshot, { restored: true }), "SNAPSHOT_INVALID");
    assert.deepEqual(await flatImages(vm.home), []);
    await vm.runtime.removeSnapshot(`${vm.tag}-damaged`);
  });
});
