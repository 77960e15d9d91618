// The KVM probe on a real QEMU: the whole cycle, and the reported reasons when it fails.

import assert from "node:assert/strict";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { ensureGuestKernel, installation, prepareHome, resolveHome } from "@forkd/runtime";
import { findQemu, type QemuBinary } from "@forkd/runtime/vmm/qemu/binary";
import { probeConfinement } from "@forkd/runtime/probe/confinement";
import { ENGINE } from "@forkd/runtime/vmm/engine";
import { tryForking, type TrialOptions } from "@forkd/runtime/probe/fork-trial";
import { probeAccelerator } from "@forkd/runtime/probe/accelerator";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import {
  bootSmallGuest,
  connectAgent,
  COUNTER,
  countIn,
  isKvmOpen,
  kvmRefusal,
  NOWHERE,
  saveStopped,
  SMALL_GUEST_BYTES,
  TCG,
} from "../helpers/small-guest.ts";
import { until } from "../helpers/until.ts";

import type { Home } from "@forkd/runtime";

describe("the probe of an accelerator", { timeout: 4 * patience() }, () => {
  let home: Home;
  let opts: TrialOptions;
  let qemu: QemuBinary;

  before(async () => {
    home = await prepareHome(resolveHome());
    const { agent, kernelsDir, warden } = installation;
    qemu = await findQemu();
    const engine = await ENGINE.find();
    const guestKernel = await ensureGuestKernel(home, { agent, kernelsDir });
    const confinement = await probeConfinement(home, { engine, warden });
    opts = { engine, guestKernel, warden, confinement, shape: TCG, withinMs: patience() };
  });

  test("boots, freezes, forks, branches and forks the branch, also of a frozen copy, and leaves no process or file", async () => {
    const there = await readdir(home.run);
    const { freezeObstacle } = await tryForking(home, opts);
    if (opts.confinement.kind === "namespaces") assert.equal(freezeObstacle, null);
    else assert.match(freezeObstacle ?? "", /not confined/);
    assert.deepEqual(await readdir(home.run), there);
  });

  test("that times out reports the end of the console", async () => {
    await assert.rejects(tryForking(home, { ...opts, withinMs: 1500 }), ({ message }: Error) => {
      assert.match(message, /did not answer within 1500 ms|did not end within 1500 ms/);
      assert.match(message, /Its console ended with: \S/);
      return true;
    });
  });

  test("of a guest that panics reports its console", async () => {
    const guestKernel = { ...opts.guestKernel, initrd: opts.guestKernel.vmlinuz };
    await assert.rejects(tryForking(home, { ...opts, guestKernel }), /QEMU ended \(.*Its console ended with: .*panic/is);
  });

  test("of a CPU model that QEMU lacks reports QEMU's error", async () => {
    const shape = { ...TCG, cpu: "no-such-cpu" };
    await assert.rejects(tryForking(home, { ...opts, shape }), /QEMU ended \(exit code 1\).*QEMU said: .*no-such-cpu/s);
  });

  test("chooses the accelerator for this host, and the result matches its device", async () => {
    const { engine, guestKernel, warden, confinement } = opts;
    const choice = await probeAccelerator(home, { engine, guestKernel, warden, confinement, fresh: true });
    const usable = await isKvmOpen();
    if (choice.accelerator === "kvm") assert.ok(usable);
    else
      assert.match(
        choice.reason,
        usable ? /forking a guest with it fails: .*(Its console ended with: \S|QEMU said: \S|lacks \w)/s : /\/dev\/kvm/,
      );
    assert.equal(choice.accelerator === "tcg", choice.advice !== undefined);
  });

  for (const accelerator of ["tcg", "kvm"] as const)
    test(`a guest without a kernel is stopped, saved, restored, branched and continues with ${accelerator}`, async (t) => {
      const refusal = accelerator === "kvm" ? await kvmRefusal(qemu.path) : undefined;
      if (refusal !== undefined) return t.skip(refusal);
      await using cleanup = new AsyncDisposableStack();
      const { dir, warden, engine, common, parent } = await bootSmallGuest(home, opts, cleanup, COUNTER, accelerator);
      const { memory } = common;
      for (const name of ["c", "g"]) await mkdir(join(dir, name));
      await until(async () => (await countIn(memory)) > 0n);
      const frozen = await saveStopped(parent, join(dir, "state-1"));
      const atFreeze = await countIn(memory);
      await parent.kill();
      assert.equal((await parent.exited).failure, null);

      const child = await engine.restore({ ...common, dir: join(dir, "c"), deviceState: frozen, start: "hold" });
      cleanup.defer(async () => child.kill());
      await connectAgent(cleanup, child);
      await child.loaded();
      assert.equal(await child.isRunning(), false);
      await child.resume();
      assert.equal(await child.isRunning(), true);
      let branches = 0;
      let branched = "";
      let flat = "";
      // Until the child has run: it continues counting from the snapshot's value, in its own pages
      await until(async () => {
        const delta = join(dir, `delta-${++branches}`);
        const capture = await warden.captureBegin({ pid: child.pid, ramPath: memory, ramBytes: SMALL_GUEST_BYTES, deltaPath: delta });
        branched = await saveStopped(child, `${delta}.state`);
        await capture.finish();
        await child.resume();
        await capture.commit();
        flat = `${delta}.ram`;
        await warden.flatten({ base: memory, deltas: [delta], out: flat });
        return (await countIn(flat)) > atFreeze;
      });
      assert.equal(await countIn(memory), atFreeze);
      assert.equal(await child.isRunning(), true);

      const grandchild = await engine.restore({ ...common, memory: flat, dir: join(dir, "g"), deviceState: branched, start: "hold" });
      cleanup.defer(async () => grandchild.kill());
      await connectAgent(cleanup, grandchild);
      await grandchild.loaded();
      await grandchild.resume();
      assert.equal(await grandchild.isRunning(), true);
      for (const vm of [child, grandchild]) {
        await vm.kill();
        assert.equal((await vm.exited).failure, null);
      }
    });

  test("a guest on which KVM fails is ended at once, with QEMU's message", async (t) => {
    const refusal = await kvmRefusal(qemu.path);
    if (refusal !== undefined) return t.skip(refusal);
    await using cleanup = new AsyncDisposableStack();
    const { parent } = await bootSmallGuest(home, opts, cleanup, NOWHERE, "kvm");
    const { failure } = await parent.exited;
    assert.match(failure ?? "", /^QEMU stopped the guest \(internal-error\): KVM internal error/);
  });
});

test("the daemon reuses a failed probe, and doctor repeats it", async (t) => {
  if (!(await isKvmOpen())) return t.skip("/dev/kvm cannot be opened, so nothing is tried");
  await using daemon = await TestDaemon.make(["images", "guestKernels"]);
  await daemon.up(["--accelerator", "auto"]);
  const [name] = (await readdir(daemon.home.cache)).filter((one) => one.startsWith("accelerator-"));
  assert.ok(name);
  const file = join(daemon.home.cache, name);
  const kept = JSON.parse(await readFile(file, "utf8")) as object;
  await writeFile(file, JSON.stringify({ ...kept, accelerator: "tcg", reason: "an earlier failure" }));
  await daemon.down();
  await daemon.up(["--accelerator", "auto"]);
  assert.equal((await daemon.controller.status()).accelerator_reason, "an earlier failure");
  const { stdout } = await daemon.cli(["doctor", "--json"], { env: { FORKD_ACCELERATOR: "auto" } });
  assert.match(stdout, /"id": ?"accelerator"/);
  assert.doesNotMatch(stdout, /an earlier failure/);
  assert.doesNotMatch(await readFile(file, "utf8"), /an earlier failure/);
});
