// Frozen copies of real VMMs: a process with the guest's memory of one moment, and nothing else. With KVM and without, on
// guests of a few instructions, because some hosts have a /dev/kvm that cannot run Linux.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { ForkdError, installation, prepareHome, resolveHome } from "@forkd/runtime";
import { probeConfinement } from "@forkd/runtime/probe/confinement";
import { findQemu } from "@forkd/runtime/vmm/qemu/binary";
import { ENGINE } from "@forkd/runtime/vmm/engine";
import { WardenFault } from "@forkd/runtime/warden/channel";
import { patience } from "../helpers/patience.ts";
import {
  bootSmallGuest,
  connectAgent,
  COUNTER,
  countIn,
  countOf,
  kvmRefusal,
  saveStopped,
  SMALL_GUEST_BYTES,
  type Booted,
} from "../helpers/small-guest.ts";
import { until } from "../helpers/until.ts";

import type { TrialOptions } from "@forkd/runtime/probe/fork-trial";
import type { Home } from "@forkd/runtime";
import type { Vm } from "@forkd/runtime/vmm/driver";

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}`);
}

/** Reads of a copy that must all give the same value while its source counts */
const READS = 20;

describe("a frozen copy", { timeout: 4 * patience() }, () => {
  let home: Home;
  let opts: Pick<TrialOptions, "engine" | "confinement" | "warden">;
  let qemu: string;

  before(async () => {
    home = await prepareHome(resolveHome());
    const { warden } = installation;
    ({ path: qemu } = await findQemu());
    const engine = await ENGINE.find();
    opts = { engine, warden, confinement: await probeConfinement(home, { engine, warden }) };
  });

  /** A restored VM whose guest counts */
  async function counting(cleanup: AsyncDisposableStack, accelerator: "kvm" | "tcg", freezable = true): Promise<Booted & { child: Vm }> {
    const booted = await bootSmallGuest(home, opts, cleanup, COUNTER, accelerator);
    const { dir, engine, common, parent } = booted;
    await until(async () => (await countIn(common.memory)) > 0n);
    const deviceState = await saveStopped(parent, join(dir, "state"));
    await parent.kill();
    await mkdir(join(dir, "c"));
    const child = await engine.restore({ ...common, dir: join(dir, "c"), deviceState, start: "hold", freezable });
    cleanup.defer(async () => child.kill());
    await connectAgent(cleanup, child);
    await child.loaded();
    await child.resume();
    await untilCounting(child, common.memory);
    return { ...booted, child };
  }

  async function untilCounting({ pid }: Vm, memory: string): Promise<void> {
    const now = await countOf(pid, memory);
    await until(async () => (await countOf(pid, memory)) !== now);
  }

  for (const accelerator of ["tcg", "kvm"] as const) {
    const refusal = async (): Promise<string | undefined> => {
      if (opts.confinement.kind === "none") return `VMMs cannot be confined: ${opts.confinement.reason}`;
      return accelerator === "kvm" ? kvmRefusal(qemu) : undefined;
    };

    test(`has the memory of its moment and nothing else, while its source counts on, with ${accelerator}`, async (t) => {
      const why = await refusal();
      if (why !== undefined) return t.skip(why);
      await using cleanup = new AsyncDisposableStack();
      const { warden, engine, common, child } = await counting(cleanup, accelerator);
      const { memory } = common;
      const ram = { path: memory, bytes: SMALL_GUEST_BYTES };
      const descriptors = (await readdir(`/proc/${child.pid}/fd`)).length;
      for (const isStopped of [true, false, true]) {
        await engine.prepareFreeze(child, ram);
        if (isStopped) await child.pause();
        const stoppedAt = await countOf(child.pid, memory);
        const copy = await engine.freeze(child);
        if (isStopped) await child.resume();
        const count = await countOf(copy.pid, memory);
        if (isStopped) assert.equal(count, stoppedAt);
        await untilCounting(child, memory);
        for (let read = 0; read < READS; read++) assert.equal(await countOf(copy.pid, memory), count, "its memory changes");
        assert.equal(await child.isRunning(), true);
        assert.equal((await readdir(`/proc/${child.pid}/fd`)).length, descriptors, "the source keeps no descriptor");

        assert.deepEqual(await readdir(`/proc/${copy.pid}/fd`), []);
        assert.equal((await readdir(`/proc/${copy.pid}/task`)).length, 1);
        const status = await readFile(`/proc/${copy.pid}/status`, "utf8");
        assert.match(status, new RegExp(`^PPid:\\s+${(await warden.info()).pid}$`, "m"));
        assert.match(status, /^Name:\s+forkd-frozen$/m);
        assert.match(status, /^Seccomp:\s+2$/m);
        assert.match(status, /^CapEff:\s+0+$/m);
        const maps = (await readFile(`/proc/${copy.pid}/maps`, "utf8")).trim().split("\n");
        const others = maps.filter((line) => !line.endsWith(memory) && !/ \[v\w+\]$/.test(line));
        assert.equal(others.length, 2, `code and data of the script only:\n${maps.join("\n")}`);
        for (const name of ["user", "mnt", "pid", "ipc", "uts", "net"])
          assert.equal(await readlink(`/proc/${copy.pid}/ns/${name}`), await readlink(`/proc/${child.pid}/ns/${name}`));
        process.kill(copy.pid, "SIGTERM");
        process.kill(copy.pid, "SIGUSR1");
        await wait(20);
        assert.ok(isAlive(copy.pid), "a signal ends its wait");
        await copy.end();
        assert.ok(!isAlive(copy.pid));
        await untilCounting(child, memory);
      }
    });

    test(`is stored as branches whose forks count on from its moment, with ${accelerator}`, async (t) => {
      const why = await refusal();
      if (why !== undefined) return t.skip(why);
      await using cleanup = new AsyncDisposableStack();
      const { dir, warden, engine, common, child } = await counting(cleanup, accelerator);
      const { memory } = common;
      const ram = { ramPath: memory, ramBytes: SMALL_GUEST_BYTES };
      const deltas: string[] = [];
      for (const name of ["first", "second"]) {
        await engine.prepareFreeze(child, { path: memory, bytes: SMALL_GUEST_BYTES });
        const deviceState = await saveStopped(child, join(dir, `${name}.state`));
        const copy = await engine.freeze(child);
        await child.resume();
        const count = await countOf(copy.pid, memory);
        const delta = join(dir, `${name}.delta`);
        const captured = await warden.capture({ pid: copy.pid, ...ram, deltaPath: delta, earlier: [...deltas] });
        assert.ok(captured.pages > 0);
        deltas.push(delta);
        await copy.end();
        const flat = join(dir, `${name}.ram`);
        await warden.flatten({ base: memory, deltas, out: flat });
        assert.equal(await countIn(flat), count);
        await mkdir(join(dir, name));
        const fork = await engine.restore({ ...common, memory: flat, dir: join(dir, name), deviceState, start: "hold" });
        cleanup.defer(async () => fork.kill());
        await connectAgent(cleanup, fork);
        await fork.loaded();
        await fork.resume();
        await untilCounting(fork, flat);
        assert.ok((await countOf(fork.pid, flat)) > count);
        assert.equal(await child.isRunning(), true);
      }
    });

    test(`outlives its source, and ends with the warden, with ${accelerator}`, async (t) => {
      const why = await refusal();
      if (why !== undefined) return t.skip(why);
      await using cleanup = new AsyncDisposableStack();
      const { warden, engine, common, child } = await counting(cleanup, accelerator);
      await engine.prepareFreeze(child, { path: common.memory, bytes: SMALL_GUEST_BYTES });
      const copy = await engine.freeze(child);
      await child.kill();
      assert.ok(isAlive(copy.pid));
      const { pid } = await warden.info();
      process.kill(pid, "SIGKILL");
      await until(() => !isAlive(copy.pid));
    });
  }

  test("is not made of a VMM that was not started or readied for it", async (t) => {
    if (opts.confinement.kind === "none") return t.skip(`VMMs cannot be confined: ${opts.confinement.reason}`);
    const fault = (code: string) => (error: unknown) =>
      error instanceof ForkdError && error.cause instanceof WardenFault && error.cause.code === code;
    await using cleanup = new AsyncDisposableStack();
    const plain = await counting(cleanup, "tcg", false);
    const ram = { path: plain.common.memory, bytes: SMALL_GUEST_BYTES };
    await assert.rejects(plain.engine.prepareFreeze(plain.child, ram), fault("EINVAL"));
    await assert.rejects(plain.engine.freeze(plain.child), fault("EINVAL"));
    const { engine, common, child } = await counting(cleanup, "tcg");
    await assert.rejects(engine.freeze(child), fault("EINVAL"));
    await assert.rejects(engine.hold(child), fault("EINVAL"));
    await assert.rejects(engine.prepareFreeze(child, { path: common.memory, bytes: 2 * SMALL_GUEST_BYTES }), fault("EINVAL"));
    await assert.rejects(engine.prepareFreeze(child, { ...ram, path: "/dev/null" }), fault("ENOENT"));
    await untilCounting(child, common.memory);
  });
});
