// The KVM probe on a real QEMU: the whole cycle, and the reported reasons when it fails.

import assert from "node:assert/strict";
import { access, constants, mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { ensureGuestKernel, installation, messageOf, prepareHome, resolveHome } from "@forkd/runtime";
import { AgentConnection } from "@forkd/runtime/agent/wire/connection";
import { Warden } from "@forkd/runtime/warden/warden";
import { BASELINE_CPU } from "@forkd/runtime/vmm/qemu/args";
import { findQemu, type QemuBinary } from "@forkd/runtime/vmm/qemu/binary";
import { qemuCapabilities } from "@forkd/runtime/vmm/qemu/capabilities";
import { probeConfinement } from "@forkd/runtime/probe/confinement";
import { ENGINE } from "@forkd/runtime/vmm/engine";
import { tryForking, type TrialOptions } from "@forkd/runtime/probe/fork-trial";
import { probeAccelerator } from "@forkd/runtime/probe/accelerator";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { Home } from "@forkd/runtime";
import type { BootSpec, Engine, MachineShape, Vm } from "@forkd/runtime/vmm/driver";

const MIB = 1024 * 1024;
const MEMORY_MIB = 128;
/** Address at which the guest without a kernel counts */
const COUNT_AT = 2 * MIB;
/** add dword [COUNT_AT], 1; adc dword [COUNT_AT + 4], 0; jmp back */
const COUNTER = Buffer.from([0x83, 0x05, 0, 0, 0x20, 0, 1, 0x83, 0x15, 4, 0, 0x20, 0, 0, 0xeb, 0xf0]);
/** mov eax, 0xd0000000; jmp eax: an address without memory, which KVM cannot execute */
const NOWHERE = Buffer.from([0xb8, 0, 0, 0, 0xd0, 0xff, 0xe0]);
const TCG = { cpu: BASELINE_CPU, accelerator: "tcg" as const };

/** A VM that runs a small program in place of a kernel, and the files that its children need */
type Booted = {
  dir: string;
  warden: Warden;
  engine: Engine;
  common: Pick<BootSpec, "shape" | "rootfs" | "memory" | "disk">;
  parent: Vm;
};

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

  test("boots, freezes, forks, branches and forks the branch, and leaves no process or file", async () => {
    const there = await readdir(home.run);
    await tryForking(home, opts);
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
    const usable = await isUsable();
    if (choice.accelerator === "kvm") assert.ok(usable);
    else
      assert.match(
        choice.reason,
        usable ? /forking a guest with it fails: .*(Its console ended with: \S|QEMU said: \S|lacks \w)/s : /\/dev\/kvm/,
      );
    assert.equal(choice.accelerator === "tcg", choice.advice !== undefined);
  });

  async function booted(cleanup: AsyncDisposableStack, code: Buffer, accelerator: "kvm" | "tcg"): Promise<Booted> {
    const dir = await mkdtemp(join(home.run, "c-"));
    cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
    const warden = cleanup.use(await Warden.start({ binary: opts.warden }));
    const { confinement, guestKernel } = opts;
    const engine = opts.engine.start({ accelerator: { accelerator, reason: "tried" }, warden: async () => warden, confinement });
    const shape: MachineShape = { ...engine.newMachine, ...TCG, accelerator, vcpus: 1, memoryMiB: MEMORY_MIB };
    const common = { shape, rootfs: null, memory: join(dir, "memory.ram"), disk: null };
    await mkdir(join(dir, "p"));
    const kernel = { guestKernel: await writeProgram(join(dir, "program"), code), initrd: guestKernel.initrd, commandLine: "" };
    const parent = await engine.boot({ ...common, dir: join(dir, "p"), ...kernel });
    cleanup.defer(async () => parent.kill());
    return { dir, warden, engine, common, parent };
  }

  /** QEMU loads the state only with a connection to the agent's port */
  async function connected(cleanup: AsyncDisposableStack, vm: Vm): Promise<void> {
    await until(async () => (await readFile(vm.log, "utf8")).includes("waiting for connection"));
    const agent = new AgentConnection(vm.agentSocket);
    cleanup.defer(() => agent.close());
  }

  for (const accelerator of ["tcg", "kvm"] as const)
    test(`a guest without a kernel is stopped, saved, restored, branched and continues with ${accelerator}`, async (t) => {
      const refusal = accelerator === "kvm" ? await kvmRefusal(qemu.path) : undefined;
      if (refusal !== undefined) return t.skip(refusal);
      await using cleanup = new AsyncDisposableStack();
      const { dir, warden, engine, common, parent } = await booted(cleanup, COUNTER, accelerator);
      const { memory } = common;
      for (const name of ["c", "g"]) await mkdir(join(dir, name));
      await until(async () => (await countIn(memory)) > 0n);
      const frozen = await freeze(parent, join(dir, "state-1"));
      const atFreeze = await countIn(memory);
      await parent.kill();
      assert.equal((await parent.exited).failure, null);

      const child = await engine.restore({ ...common, dir: join(dir, "c"), deviceState: frozen, start: "hold" });
      cleanup.defer(async () => child.kill());
      await connected(cleanup, child);
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
        const capture = await warden.captureBegin({ pid: child.pid, ramPath: memory, ramBytes: MEMORY_MIB * MIB, deltaPath: delta });
        branched = await freeze(child, `${delta}.state`);
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
      await connected(cleanup, grandchild);
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
    const { parent } = await booted(cleanup, NOWHERE, "kvm");
    const { failure } = await parent.exited;
    assert.match(failure ?? "", /^QEMU stopped the guest \(internal-error\): KVM internal error/);
  });
});

test("the daemon reuses a failed probe, and doctor repeats it", async (t) => {
  if (!(await isUsable())) return t.skip("/dev/kvm cannot be opened, so nothing is tried");
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

async function freeze(vm: Vm, state: string): Promise<string> {
  await vm.pause();
  await vm.saveDeviceState();
  await vm.takeDeviceState(state);
  return state;
}

/** Writes an ELF program at the address where QEMU starts a kernel: some hosts have a /dev/kvm that cannot run Linux */
async function writeProgram(path: string, code: Buffer): Promise<string> {
  const ORIGIN = 0x10_0000;
  const HEADERS = 64 + 2 * 56;
  const NOTE_BYTES = 24;
  const elf = Buffer.alloc(8192);
  elf.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  const [EXEC, X86_64] = [2, 62];
  elf.writeUInt16LE(EXEC, 16);
  elf.writeUInt16LE(X86_64, 18);
  elf.writeUInt32LE(1, 20);
  elf.writeBigUInt64LE(BigInt(ORIGIN), 24);
  elf.writeBigUInt64LE(64n, 32); // offset of the program headers
  for (const [value, at] of [64, 56, 2].map((size, index) => [size, 52 + 2 * index] as const)) elf.writeUInt16LE(value, at);
  const segment = (at: number, type: number, offset: number, bytes: number): void => {
    elf.writeUInt32LE(type, at);
    elf.writeUInt32LE(5, at + 4);
    for (const [value, place] of [offset, ORIGIN, ORIGIN, bytes, bytes, 4].map((word, index) => [word, at + 8 + 8 * index] as const))
      elf.writeBigUInt64LE(BigInt(value), place);
  };
  const [LOAD, NOTE] = [1, 4];
  segment(64, LOAD, HEADERS + NOTE_BYTES, code.length);
  segment(64 + 56, NOTE, HEADERS, NOTE_BYTES);
  // the note in which QEMU finds the entry point: XEN_ELFNOTE_PHYS32_ENTRY
  for (const [value, index] of [4, 8, 18].map((word, at) => [word, at] as const)) elf.writeUInt32LE(value, HEADERS + 4 * index);
  elf.write("Xen", HEADERS + 12);
  elf.writeBigUInt64LE(BigInt(ORIGIN), HEADERS + 16);
  elf.set(code, HEADERS + NOTE_BYTES);
  await writeFile(path, elf);
  return path;
}

async function countIn(memory: string): Promise<bigint> {
  await using file = await open(memory);
  const { buffer } = await file.read(Buffer.alloc(8), 0, 8, COUNT_AT);
  return buffer.readBigUInt64LE();
}

async function isUsable(): Promise<boolean> {
  return access("/dev/kvm", constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** Reason why no VM can be created with KVM on this host */
async function kvmRefusal(qemu: string): Promise<string | undefined> {
  if (!(await isUsable())) return "/dev/kvm cannot be opened";
  return qemuCapabilities(qemu, "kvm").then(
    () => undefined,
    (error: unknown) => `QEMU cannot use /dev/kvm: ${messageOf(error)}`,
  );
}
