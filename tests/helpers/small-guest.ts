// Guests without a kernel: a few instructions that count in memory. They run with KVM also where it cannot run Linux.

import { access, constants, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@forkd/runtime";
import { AgentConnection } from "@forkd/runtime/agent/wire/connection";
import { Warden } from "@forkd/runtime/warden/warden";
import { BASELINE_CPU } from "@forkd/runtime/vmm/qemu/args";
import { qemuCapabilities } from "@forkd/runtime/vmm/qemu/capabilities";
import { until } from "./until.ts";

import type { Home } from "@forkd/runtime";
import type { TrialOptions } from "@forkd/runtime/probe/fork-trial";
import type { BootSpec, Engine, MachineShape, Vm } from "@forkd/runtime/vmm/driver";

const MIB = 1024 * 1024;
export const SMALL_GUEST_BYTES = 128 * MIB;
export const TCG = { cpu: BASELINE_CPU, accelerator: "tcg" as const };
/** Address at which the guest without a kernel counts */
const COUNT_AT = 2 * MIB;
/** add dword [COUNT_AT], 1; adc dword [COUNT_AT + 4], 0; jmp back */
export const COUNTER = Buffer.from([0x83, 0x05, 0, 0, 0x20, 0, 1, 0x83, 0x15, 4, 0, 0x20, 0, 0, 0xeb, 0xf0]);
/** mov eax, 0xd0000000; jmp eax: an address without memory, which KVM cannot execute */
export const NOWHERE = Buffer.from([0xb8, 0, 0, 0, 0xd0, 0xff, 0xe0]);

/** A VM that runs a small program in place of a kernel, and the files that its children need */
export type Booted = {
  dir: string;
  warden: Warden;
  engine: Engine;
  common: Pick<BootSpec, "shape" | "rootfs" | "memory" | "disk">;
  parent: Vm;
};

/** The VMM of such a guest, which counts in its memory file */
export async function bootSmallGuest(
  home: Home,
  opts: Pick<TrialOptions, "engine" | "confinement" | "warden">,
  cleanup: AsyncDisposableStack,
  code: Buffer,
  accelerator: "kvm" | "tcg",
): Promise<Booted> {
  const dir = await mkdtemp(join(home.run, "c-"));
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  const warden = cleanup.use(await Warden.start({ binary: opts.warden }));
  const { confinement } = opts;
  const engine = opts.engine.start({ accelerator: { accelerator, reason: "tried" }, warden: async () => warden, confinement });
  const shape: MachineShape = { ...engine.newMachine, ...TCG, accelerator, vcpus: 1, memoryMiB: SMALL_GUEST_BYTES / MIB };
  const common = { shape, rootfs: null, memory: join(dir, "memory.ram"), disk: null };
  await mkdir(join(dir, "p"));
  const guestKernel = await writeProgram(join(dir, "program"), code);
  // QEMU takes any file as the second
  const parent = await engine.boot({ ...common, dir: join(dir, "p"), guestKernel, initrd: guestKernel, commandLine: "" });
  cleanup.defer(async () => parent.kill());
  return { dir, warden, engine, common, parent };
}

/** QEMU loads the state of a restored VM only when there is a connection to the agent's port */
export async function connectAgent(cleanup: AsyncDisposableStack, vm: Vm): Promise<void> {
  await until(async () => (await readFile(vm.log, "utf8")).includes("waiting for connection"));
  const agent = new AgentConnection(vm.agentSocket);
  cleanup.defer(() => agent.close());
}

/** Stops a VM and saves its device state in a new file */
export async function saveStopped(vm: Vm, state: string): Promise<string> {
  await vm.pause();
  await vm.saveDeviceState();
  await vm.takeDeviceState(state);
  return state;
}

/** Value of the counter in a memory file */
export async function countIn(memory: string): Promise<bigint> {
  await using file = await open(memory);
  const { buffer } = await file.read(Buffer.alloc(8), 0, 8, COUNT_AT);
  return buffer.readBigUInt64LE();
}

/** Value of the counter in the memory of a process that maps the file */
export async function countOf(pid: number, memory: string): Promise<bigint> {
  const maps = await readFile(`/proc/${pid}/maps`, "utf8");
  const start = maps
    .split("\n")
    .find((line) => line.endsWith(memory))
    ?.split("-")[0];
  if (start === undefined) throw new Error(`process ${pid} does not map ${memory}`);
  await using file = await open(`/proc/${pid}/mem`);
  const { buffer } = await file.read({ buffer: Buffer.alloc(8), position: BigInt(`0x${start}`) + BigInt(COUNT_AT) });
  return buffer.readBigUInt64LE();
}

/** Whether this user may open /dev/kvm */
export async function isKvmOpen(): Promise<boolean> {
  return access("/dev/kvm", constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** Reason why no VM can be created with KVM on this host */
export async function kvmRefusal(qemu: string): Promise<string | undefined> {
  if (!(await isKvmOpen())) return "/dev/kvm cannot be opened";
  return qemuCapabilities(qemu, "kvm").then(
    () => undefined,
    (error: unknown) => `QEMU cannot use /dev/kvm: ${messageOf(error)}`,
  );
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
