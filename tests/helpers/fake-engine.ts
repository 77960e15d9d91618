// A second engine for tests. Its machines have memory that the warden can capture and an agent that answers the
// requests of a fork, but no guest. It shows that code outside an engine's folder does not depend on the engine.

import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { copyFile, link, open, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { attachedRecord, attachRecord, CHANNEL, encodeFrame, FrameDecoder, PROTOCOL_VERSION, T } from "@forkd/runtime/agent/wire/protocol";
import { ForkdError } from "@forkd/runtime";
import { Reader, Writer } from "@forkd/runtime/util/codec";
import { WardenFault } from "@forkd/runtime/warden/channel";

import type { Frame } from "@forkd/runtime/agent/wire/protocol";
import type { Layer } from "@forkd/runtime/disk/layer";
import type { ProcessId } from "@forkd/runtime/util/process-id";
import type { HostSupport } from "@forkd/runtime/host-support";
import type {
  BootSpec,
  DiskControl,
  Engine,
  EngineOptions,
  FrozenCopy,
  InstalledEngine,
  MachineShape,
  PackNeeds,
  Refusal,
  RestoreSpec,
  Vm,
  VmExit,
} from "@forkd/runtime/vmm/driver";
import type { VmmProcess } from "@forkd/runtime/warden/warden";

const VERSION = "1.0";
const MIB = 1024 * 1024;
const ATTACH_BYTES = 48;
const KEY_BYTES = 16;
const CONTROL_FD = 3;
const PROGRAM = join(import.meta.dirname, "../programs/fake-machine.py");

/** Machine type of new fake machines */
export const FAKE_MACHINE: Engine["newMachine"] = { engine: "fake", engineVersion: VERSION, machine: "toy" };

/** Compatibility rules: the fake engine accepts its own snapshots up to its version */
export const FAKE_RULES = {
  name: "fake",
  version: VERSION,
  description: `Fake ${VERSION}`,
  newMachine: FAKE_MACHINE,
  commandLine: (): string => "",
  prepare: async (): Promise<void> => undefined,
  cpuFor: async (asked: string | undefined): Promise<{ cpu: string }> => ({ cpu: asked ?? "toy" }),
  refusal: (shape: MachineShape): Refusal | undefined => newer(shape),
  packRefusal: async (needs: PackNeeds): Promise<Refusal | undefined> => newer(needs),
} satisfies Partial<Engine>;

function newer({ engineVersion }: Pick<MachineShape, "engineVersion">): Refusal | undefined {
  if (Number(engineVersion) <= Number(VERSION)) return undefined;
  return { why: `it was made with Fake ${engineVersion} and this is the older ${VERSION}`, hint: "Install a newer Fake." };
}

export function fakeInstalled(more: Partial<InstalledEngine> = {}): InstalledEngine {
  return {
    name: FAKE_RULES.name,
    title: "Fake",
    version: VERSION,
    description: FAKE_RULES.description,
    fingerprint: VERSION,
    calls: { filter: "deny", reason: "it is a fake" },
    newMachine: FAKE_MACHINE,
    bestCpu: async () => ({ cpu: "toy" }),
    tryConfined: async () => undefined,
    start: (opts) => new FakeEngine(opts),
    ...more,
  };
}

/** How frozen copies of fake machines are made, and the copies */
export type FakeFreezes = {
  /** the step that fails, and the code of the warden's error */
  fails: { at: "prepare" | "freeze" | "capture"; code: string } | null;
  prepared: number;
  /** process ids of the copies that have not ended */
  alive: Set<number>;
};

/** Host support that makes a runtime use the fake engine; with `freezes`, as if it had KVM and made frozen copies */
export function fakeHost(freezes?: FakeFreezes): HostSupport {
  return {
    engine: fakeInstalled({ start: (opts) => new FakeEngine(opts, freezes) }),
    guestKernel: { id: "k", release: "6.1", vmlinuz: "/dev/null", initrd: "/dev/null", diskInitrd: "/dev/null" },
    accelerator: { accelerator: freezes ? "kvm" : "tcg", reason: "it is a fake" },
    confinement: { kind: "none", reason: "it is a fake" },
    checkStart: () => undefined,
  };
}

let python: string | undefined;

class FakeEngine implements Engine {
  readonly name: string = FAKE_RULES.name;
  readonly version: string = FAKE_RULES.version;
  readonly description: string = FAKE_RULES.description;
  readonly newMachine: Engine["newMachine"] = FAKE_MACHINE;
  readonly commandLine: Engine["commandLine"] = FAKE_RULES.commandLine;
  readonly prepare: Engine["prepare"] = FAKE_RULES.prepare;
  readonly cpuFor: Engine["cpuFor"] = FAKE_RULES.cpuFor;
  readonly refusal: Engine["refusal"] = FAKE_RULES.refusal;
  readonly packRefusal: Engine["packRefusal"] = FAKE_RULES.packRefusal;
  readonly #opts: EngineOptions;
  /** by process id: a machine can be adopted only by the process that started it */
  readonly #vms = new Map<number, FakeVm>();
  readonly freezeObstacle: string | null;
  readonly #freezes: FakeFreezes | undefined;

  constructor(opts: EngineOptions, freezes?: FakeFreezes) {
    this.#opts = opts;
    this.#freezes = freezes;
    this.freezeObstacle = freezes ? null : "it was not asked for";
  }

  /** Fake machines write nothing to their disks, so the lowest layer is the whole disk */
  async flatten(layers: readonly Layer[], _sizeMiB: number, dir: string): Promise<Layer> {
    const [lowest] = layers;
    if (!lowest) throw new Error("a disk has no layers");
    const path = join(dir, `${lowest.id}.raw`);
    if (path !== lowest.path) await link(lowest.path, path);
    return { ...lowest, path };
  }

  async boot(spec: BootSpec): Promise<Vm> {
    {
      await using memory = await open(spec.memory, "wx", 0o600);
      await memory.truncate(spec.shape.memoryMiB * MIB);
    }
    const key = /forkd\.key=([0-9a-f]+)/.exec(spec.commandLine)?.[1] ?? "";
    return this.#start(spec, "shared", { key: Buffer.from(key, "hex"), isPaused: false });
  }

  async restore(spec: RestoreSpec): Promise<Vm> {
    const key = (await readFile(spec.deviceState)).subarray(0, KEY_BYTES);
    return this.#start(spec, "private", { key, isPaused: spec.start === "hold" });
  }

  readonly cloneObstacle = "its machines are no processes that can be cloned";

  async hold(): Promise<void> {
    throw new Error(this.cloneObstacle);
  }

  async clone(): Promise<Vm> {
    throw new Error(this.cloneObstacle);
  }

  async prepareFork(): Promise<void> {
    throw new Error(this.cloneObstacle);
  }

  async fork(): Promise<Vm> {
    throw new Error(this.cloneObstacle);
  }

  async prepareFreeze(): Promise<void> {
    if (this.#freezes) this.#freezes.prepared++;
    this.#failAt("prepare");
  }

  /** Another process with the same memory */
  async freeze(vm: Vm): Promise<FrozenCopy> {
    this.#failAt("freeze");
    const original = this.#vms.get(vm.pid);
    const freezes = this.#freezes;
    if (!original || !freezes) throw new Error("there is no such machine");
    const { dir, memory, writes } = original;
    const control = join(dir, `frozen-${freezes.prepared}`);
    const copy = await this.#spawn(dir, memory, "private", control);
    freezes.alive.add(copy.pid);
    const content = new MemoryControl(control);
    const end = async (): Promise<void> => {
      await copy.kill("SIGKILL");
      await copy.exited;
      content.close();
      freezes.alive.delete(copy.pid);
    };
    for (const [at, hex] of writes) await content.write(at, hex);
    await content.read(0, 1);
    if (freezes.fails?.at === "capture") await end();
    return { pid: copy.pid, end };
  }

  #failAt(step: "prepare" | "freeze"): void {
    const fails = this.#freezes?.fails;
    if (fails?.at !== step) return;
    throw new ForkdError("VMM_FAILED", `The ${step} failed.`, { cause: new WardenFault(fails.code, "it is a test") });
  }

  async adopt({ pid }: ProcessId): Promise<Vm> {
    const vm = this.#vms.get(pid);
    if (!vm) throw new Error(`no machine has the process ${pid}`);
    return vm;
  }

  async #spawn(dir: string, memory: string, mapping: string, control: string): Promise<VmmProcess> {
    python ??= execFileSync("python3", ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" }).trim();
    const warden = await this.#opts.warden();
    return warden.spawn({
      argv: [python, PROGRAM, memory, mapping],
      env: {},
      cwd: dir,
      log: join(dir, "vmm.log"),
      files: [{ fd: CONTROL_FD, path: control, mode: "listen" }],
    });
  }

  async #start(spec: BootSpec | RestoreSpec, mapping: string, begin: Omit<Begin, "memory" | "isFreezable">): Promise<Vm> {
    const { dir, memory, disk } = spec;
    const control = join(dir, "control");
    const process = await this.#spawn(dir, memory, mapping, control);
    const isFreezable = "freezable" in spec && spec.freezable === true;
    const vm = new FakeVm(process, dir, control, { ...begin, memory, isFreezable }, disk?.active.id);
    await vm.listen();
    this.#vms.set(vm.pid, vm);
    return vm;
  }
}

type Begin = { key: Buffer; isPaused: boolean; memory: string; isFreezable: boolean };

class FakeVm implements Vm {
  readonly startedBy = "restore";
  readonly isClonable = false;
  readonly isFreezable: boolean;
  readonly dir: string;
  /** path of its memory file */
  readonly memory: string;
  /** all writes to its memory, as address and bytes */
  readonly writes: [number, string][] = [];
  readonly pid: number;
  readonly startTime: string;
  readonly agentSocket: string;
  readonly log: string;
  readonly console: string;
  readonly exited: Promise<VmExit>;
  readonly disk: DiskControl;
  readonly #process: VmmProcess;
  readonly #key: Buffer;
  readonly #server: Server;
  readonly #content: MemoryControl;
  #socket: Socket | undefined;
  #isPaused: boolean;

  constructor(
    process: VmmProcess,
    dir: string,
    control: string,
    { key, isPaused, memory, isFreezable }: Begin,
    active: string | undefined,
  ) {
    this.#process = process;
    this.dir = dir;
    this.memory = memory;
    this.isFreezable = isFreezable;
    this.#key = key;
    this.#isPaused = isPaused;
    this.pid = process.pid;
    this.startTime = process.startTime;
    this.agentSocket = join(dir, "agent");
    this.log = join(dir, "vmm.log");
    this.console = join(dir, "console.log");
    this.disk = new FakeDisk(active);
    this.#content = new MemoryControl(control);
    this.#server = createServer((socket) => this.#serve(socket));
    this.exited = process.exited.then((exit) => {
      this.detach();
      this.#server.close();
      return { ...exit, log: "", console: "", failure: null, isOutOfSpace: false };
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.agentSocket, resolve));
  }

  async lastLog(): Promise<string> {
    return "";
  }

  /** A paused machine does not read from its agent port */
  async pause(): Promise<void> {
    this.#isPaused = true;
    this.#socket?.pause();
  }

  async resume(): Promise<void> {
    this.#isPaused = false;
    this.#socket?.resume();
  }

  async saveDeviceState(): Promise<void> {
    await writeFile(join(this.dir, "device.state"), this.#key);
  }

  async takeDeviceState(to: string): Promise<void> {
    const saved = join(this.dir, "device.state");
    await copyFile(saved, to);
    await rm(saved);
  }

  async loaded(): Promise<void> {
    await this.#content.read(0, 1);
  }

  async prepare(): Promise<void> {
    await this.#content.read(0, 1);
  }

  watch(): void {
    // a fake machine never stops by itself
  }

  async isRunning(): Promise<boolean> {
    return !this.#isPaused;
  }

  async drainConsole(): Promise<Buffer> {
    return Buffer.alloc(0);
  }

  async kill(): Promise<void> {
    await this.#process.kill("SIGKILL");
    await this.exited;
  }

  detach(): void {
    this.#socket?.destroy();
    this.#content.close();
  }

  #serve(socket: Socket): void {
    this.#socket = socket;
    let record: Buffer | undefined = Buffer.alloc(0);
    const decoder = new FrameDecoder();
    socket.on("error", () => undefined); // the host closes connections at any time
    if (this.#isPaused) socket.pause();
    socket.on("data", (chunk: Buffer) => {
      let bytes = chunk;
      if (record) {
        record = Buffer.concat([record, chunk]);
        if (record.length < ATTACH_BYTES) return;
        const nonce = record.subarray(32, ATTACH_BYTES);
        if (!record.subarray(0, ATTACH_BYTES).equals(attachRecord(this.#key, nonce))) return socket.destroy();
        socket.write(attachedRecord(nonce));
        this.#send(T.HELLO, 0, new Writer().u32(PROTOCOL_VERSION).str("fake").str("6.1").u32(1).u64(1n).done());
        bytes = record.subarray(ATTACH_BYTES);
        record = undefined;
      }
      for (const { type, stream, payload } of decoder.push(bytes)) void this.#answer({ type, stream, payload: Buffer.from(payload) });
    });
  }

  #send(type: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): void {
    if (this.#socket?.writable) this.#socket.write(encodeFrame(type, stream, payload));
  }

  async #answer({ type, stream, payload }: Frame): Promise<void> {
    switch (type) {
      case T.PING:
      case T.NETWORK:
      case T.REGIONS:
        return this.#send(T.RESULT, stream);
      case T.CLOCK:
        return this.#send(T.RESULT, stream, new Writer().i64(wallClock()).u64(clock()).done());
      case T.HOLD:
        return this.#send(T.RESULT, stream, new Writer().u64(clock()).done());
      case T.RESYNC:
        return this.#send(T.RESULT, stream, resynced(payload));
      case T.LIST:
        return this.#send(T.RESULT, stream, new Writer().u32(0).u8(0).done());
      case T.ATTACH:
        return this.#started(stream);
      case T.EXEC:
        return this.#run(stream, argvIn(payload));
      default:
        return undefined;
    }
  }

  #started(stream: number): void {
    this.#send(T.STARTED, stream, new Writer().u64(7n).u32(8).u64(0n).u64(0n).done());
  }

  /** Supports two programs: `poke AT HEX` writes to the machine's memory, `peek AT BYTES` prints from it */
  async #run(stream: number, [program, at = "", value = ""]: string[]): Promise<void> {
    this.#started(stream);
    const number = Number(at);
    if (program === "poke") {
      await this.#content.write(number, value);
      this.writes.push([number, value]);
    }
    if (program === "peek")
      this.#send(T.DATA, stream, Buffer.concat([Buffer.of(CHANNEL.stdout), Buffer.from(await this.#content.read(number, Number(value)))]));
    const code = program === "poke" || program === "peek" ? 0 : 127;
    this.#send(T.EXIT, stream, new Writer().i32(code).u32(0).u8(0).done());
  }
}

/** Control socket of the process that holds the memory */
class MemoryControl {
  readonly #socket: Socket;
  readonly #answers: AsyncIterator<string>;

  constructor(path: string) {
    this.#socket = connect(path);
    this.#socket.on("error", () => undefined); // the process may have been killed
    this.#answers = createInterface({ input: this.#socket })[Symbol.asyncIterator]();
  }

  async write(at: number, hex: string): Promise<void> {
    await this.#ask(`write ${at} ${hex}`);
  }

  async read(at: number, bytes: number): Promise<string> {
    return this.#ask(`read ${at} ${bytes}`);
  }

  close(): void {
    this.#socket.destroy();
  }

  async #ask(line: string): Promise<string> {
    this.#socket.write(`${line}\n`);
    const answer = await this.#answers.next();
    if (answer.done === true) throw new Error("the machine has ended");
    return answer.value;
  }
}

class FakeDisk implements DiskControl {
  #active: string;
  readonly #known = new Set<string>();

  constructor(active = "") {
    this.#active = active;
    this.#known.add(active);
  }

  async active(): Promise<string> {
    return this.#active;
  }

  async known(): Promise<string[]> {
    return [...this.#known];
  }

  async add({ id }: Layer): Promise<void> {
    this.#known.add(id);
  }

  async freeze(_active: string, next: string): Promise<void> {
    this.#active = next;
  }

  async seal(): Promise<void> {
    // its layers are no files that a process has open
  }

  async drop(id: string): Promise<void> {
    this.#known.delete(id);
  }

  async restack(_active: Layer, onto: Layer): Promise<void> {
    this.#known.add(onto.id);
  }
}

function wallClock(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}

function clock(): bigint {
  return BigInt(Math.round(performance.now() * 1e6));
}

/** A RESYNC result that reports every step as done and the generators of all interpreters as seeded */
function resynced(payload: Buffer): Buffer {
  const reader = new Reader(payload);
  reader.i64();
  reader.bytes();
  for (const _ of ["hostname", "machine id", "sandbox id"]) reader.str();
  for (let left = reader.u32(); left > 0; left--) for (const _ of ["name", "value"]) reader.str();
  const bootId = reader.str() || randomUUID();
  const generators = ["python/random", "node/random", "typescript/random"];
  const answer = new Writer().i64(wallClock()).str(bootId).u32(0);
  answer.list(generators, (writer, name) => void writer.str(name));
  return answer.u8(1).u64(clock()).done();
}

function argvIn(payload: Buffer): string[] {
  const reader = new Reader(payload);
  reader.u8();
  reader.u64();
  reader.str();
  return reader.list((item) => item.str());
}
