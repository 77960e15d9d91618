// The QEMU engine: runs VMs with stock QEMU, under KVM or TCG.

import { constants } from "node:fs";
import { access, copyFile, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { isFull } from "../../host/free-space.ts";
import type { ProcessId } from "../../util/process-id.ts";
import { tailOf } from "../../util/tail.ts";
import type { Layer } from "../../disk/layer.ts";
import type { ChildFile, CloneSpec as WardenCloneSpec, SpawnSpec, VmmProcess, Warden } from "../../warden/warden.ts";
import { WardenFault } from "../../warden/channel.ts";
import type { WardenSource } from "../../warden/source.ts";
import {
  isolationOf,
  type AcceleratorChoice,
  type BootSpec,
  type CloneSpec,
  type ConfinementState,
  type CpuChoice,
  type Engine,
  type EngineOptions,
  type ForkSpec,
  type FrozenCopy,
  type Isolation,
  type MachineShape,
  type PackNeeds,
  type Refusal,
  type RestoreSpec,
  type StartedBy,
  type Vm,
  type VmExit,
} from "../driver.ts";
import { BASELINE_CPU, bootArgs, CONSOLE_BYTES, FD, MACHINE, NEXT_LAYER, restoreArgs, SAVED_STATE } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { qemuCapabilities, type Capabilities } from "./capabilities.ts";
import { guestCommandLine, trialCommandLine } from "./command-line.ts";
import { packRefusalOf, refusalOf } from "./compatible.ts";
import { bootConfinement, confinedEnv, restoreConfinement } from "./confinement.ts";
import { chooseCpu } from "./cpu-model.ts";
import { QemuDisk, type DiskFiles } from "./disk.ts";
import { flattenLayers } from "./img.ts";
import { consoleLog, deviceStateFile, openStateFile, ownDir, spareFile, takeDeviceState, takeOpenState } from "./own-dir.ts";
import { Qmp } from "./qmp.ts";

const LOADED_POLL_MS = 2;
const LOADED_WITHIN_MS = 30_000;
const MIB = 1024 * 1024;

const statusReply = z.object({ status: z.string(), running: z.boolean() });
const shutdownSchema = z.object({ reason: z.string() });
const consoleReply = z.string().max(2 * CONSOLE_BYTES);

/** States in which QEMU no longer runs the guest */
const BROKEN = new Set(["internal-error", "guest-panicked", "io-error", "watchdog"]);
const STOPPED = new Set([...BROKEN, "paused"]);
/** State of a VMM whose guest powered off or restarted */
const ENDED = "shutdown";
/** Reasons in the SHUTDOWN event for which the VMM waits; after all others it exits by itself */
const ENDED_BY_GUEST = new Set(["guest-shutdown", "guest-reset", "guest-panic"]);

/** Part of a fork's console that is kept after its end */
const LAST_CONSOLE_BYTES = 4096;

/** Printed by the agent before it powers the guest off (`guest/src/shutdown.rs`) */
const AGENT_FAILED = /^forkd-agent: FATAL: /m;
const PANICKED = /\bKernel panic - not syncing\b/;
/** Printed at each start of a restored VMM */
const WAITED = /^.*: info: QEMU waiting for connection on: .*$/gm;
const RESTARTED = "the guest restarted, as it does when its kernel panics";

/** Time for QEMU's threads to become idle and its closed connections to be released after the guest stopped */
const HOLD_WITHIN_MS = 5000;
const HOLD_POLL_MS = 2;

/** At a clone's descriptor for further layers until it needs one */
const NO_LAYER = "/dev/null";

type Start = Pick<SpawnSpec, "confinement" | "group" | "env" | "files" | "copies"> & { isHeld: boolean; isBoot: boolean };

export function describe(version: string): string {
  return `QEMU ${version}`;
}

export function newMachine(version: string): Engine["newMachine"] {
  return { engine: "qemu", engineVersion: version, machine: MACHINE, devices: "few" };
}

export class QemuEngine implements Engine {
  readonly name = "qemu";
  readonly version: string;
  readonly description: string;
  readonly newMachine: Engine["newMachine"];
  readonly #accelerator: AcceleratorChoice;
  /** processor features for guests with KVM; null: emulated, or QEMU does not report them */
  #cpu: Capabilities | null = null;
  #capabilities: Promise<Capabilities> | undefined;
  readonly #qemu: QemuBinary;
  readonly #warden: WardenSource;
  readonly #confinement: ConfinementState;
  readonly #check: (isolation: Isolation) => void;

  constructor(opts: EngineOptions & { qemu: QemuBinary }) {
    this.version = opts.qemu.version;
    this.description = describe(this.version);
    this.newMachine = newMachine(this.version);
    this.#accelerator = opts.accelerator;
    this.#qemu = opts.qemu;
    this.#warden = opts.warden;
    this.#confinement = opts.confinement;
    this.#check = opts.check ?? (() => undefined);
  }

  commandLine(accelerator: MachineShape["accelerator"], purpose?: "trial"): string {
    return purpose === "trial" ? trialCommandLine() : guestCommandLine(accelerator);
  }

  async prepare(signal?: AbortSignal): Promise<void> {
    if (this.#accelerator.accelerator !== "kvm") return;
    try {
      this.#cpu = await qemuCapabilities(this.#qemu.path, "kvm", { signal });
    } catch (error) {
      signal?.throwIfAborted();
      // FORKD_ACCELERATOR may force a KVM that does not work; the start of a VM then reports the error
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  async cpuFor(asked: string | undefined): Promise<CpuChoice> {
    const { accelerator } = this.#accelerator;
    if (accelerator === "tcg" && (asked === undefined || asked === "baseline")) return { cpu: BASELINE_CPU };
    const facts = await this.#known();
    const isKnown = asked === undefined || facts.features.has(asked) || !facts.cpus.has(asked);
    return chooseCpu(asked, accelerator, isKnown ? facts : await qemuCapabilities(this.#qemu.path, accelerator, { model: asked }));
  }

  refusal(shape: MachineShape): Refusal | undefined {
    return refusalOf(shape, { ...this.#accelerator, qemuVersion: this.version, cpu: this.#cpu });
  }

  async packRefusal(needs: PackNeeds): Promise<Refusal | undefined> {
    return packRefusalOf(needs, { ...this.#accelerator, qemuVersion: this.version, capabilities: async () => this.#known() });
  }

  async flatten(layers: readonly Layer[], sizeMiB: number, dir: string): Promise<Layer> {
    return flattenLayers(layers, sizeMiB, dir, { confinement: this.#confinement.kind });
  }

  async #known(): Promise<Capabilities> {
    this.#capabilities ??= this.#cpu ? Promise.resolve(this.#cpu) : qemuCapabilities(this.#qemu.path, this.#accelerator.accelerator);
    try {
      return await this.#capabilities;
    } catch (error) {
      this.#capabilities = undefined;
      throw error;
    }
  }

  async boot(spec: BootSpec): Promise<Vm> {
    // created here: the VMM can write the file, but not its folder
    await using memory = await open(spec.memory, "wx", 0o600);
    await memory.truncate(spec.shape.memoryMiB * MIB);
    return this.#start(spec, bootArgs(spec), {
      isHeld: false,
      isBoot: true,
      env: {},
      files: [],
      confinement: bootConfinement(spec, this.#qemu),
    });
  }

  async restore(spec: RestoreSpec): Promise<Vm> {
    return this.#start(spec, restoreArgs(spec, this.#qemu.version), {
      isHeld: spec.start === "hold",
      isBoot: false,
      env: confinedEnv(spec.memory, this.#qemu),
      files: [{ fd: FD.state, path: spec.deviceState, mode: "read" }, ...(spec.clonable ? ownFiles(spec) : [])],
      group: spec.group,
      confinement: restoreConfinement(spec, this.#qemu),
      copies: spec.clonable ? "clones" : spec.freezable ? "frozen" : "none",
    });
  }

  get cloneObstacle(): string | null {
    return this.#confinement.kind === "namespaces" ? null : `VMMs are not confined: ${this.#confinement.reason}`;
  }

  async hold(vm: Vm): Promise<void> {
    const warden = await this.#warden();
    const deadline = Date.now() + HOLD_WITHIN_MS;
    for (;;) {
      try {
        return await warden.hold(vm.pid);
      } catch (error) {
        if (faultOf(error) !== "EAGAIN" || Date.now() > deadline) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, HOLD_POLL_MS));
    }
  }

  async clone(zygote: Vm, spec: CloneSpec): Promise<Vm> {
    await mkdir(ownDir(spec.dir), { mode: 0o700 });
    const warden = await this.#warden();
    return this.#copied(warden, await warden.clone(zygote.pid, copySpec(spec)), spec);
  }

  async prepareFork(vm: Vm, spec: ForkSpec): Promise<void> {
    const { dir, active, next } = spec;
    await mkdir(ownDir(dir), { mode: 0o700 });
    // as QEMU has opened it, and not yet written
    if (active && next) await copyFile(next.path, active.path, constants.COPYFILE_EXCL);
    const warden = await this.#warden();
    await warden.prepare(vm.pid, {
      ...copySpec(spec, "read-write"),
      silent: [FD.agent],
      next: next ? { fd: FD.disk, path: next.path } : undefined,
    });
  }

  async fork(vm: Vm, spec: ForkSpec): Promise<Vm> {
    const warden = await this.#warden();
    return this.#copied(warden, await warden.fork(vm.pid), spec);
  }

  get freezeObstacle(): string | null {
    if (this.#confinement.kind === "none") return `VMMs are not confined: ${this.#confinement.reason}`;
    return this.#accelerator.freezeObstacle === undefined ? "it was not tried" : this.#accelerator.freezeObstacle;
  }

  async prepareFreeze(vm: Vm, memory: { path: string; bytes: number }): Promise<void> {
    const warden = await this.#warden();
    await warden.prepareFrozen(vm.pid, memory);
  }

  async freeze(vm: Vm): Promise<FrozenCopy> {
    const warden = await this.#warden();
    const copy = await warden.freeze(vm.pid);
    const end = async (): Promise<void> => {
      await copy.kill("SIGKILL");
      await copy.exited;
    };
    return { pid: copy.pid, end };
  }

  #copied(warden: Warden, process: VmmProcess, { dir, memory }: CloneSpec): Vm {
    const paths = pathsIn(dir);
    const files = diskFiles(warden, process.pid);
    return new QemuVm({ process, dir, memory, isStopped: true, waitsAtEnd: true, startedBy: "clone", files, isFreezable: false, ...paths });
  }

  async #start({ dir, memory, shape }: BootSpec | RestoreSpec, args: string[], start: Start): Promise<Vm> {
    this.#check(isolationOf(shape.accelerator));
    const calls = this.#confinement.kind === "namespaces" ? this.#confinement.calls : undefined;
    const paths = pathsIn(dir);
    await mkdir(ownDir(dir), { mode: 0o700 });
    const warden = await this.#warden();
    const process = await warden.spawn({
      argv: [this.#qemu.path, ...args],
      // QEMU needs no variable of our environment
      env: { LC_ALL: "C", ...(calls ? start.env : {}) },
      cwd: ownDir(dir),
      log: paths.log,
      files: [
        ...(start.files ?? []),
        { fd: FD.qmp, path: paths.qmpSocket, mode: "listen" },
        { fd: FD.agent, path: paths.agentSocket, mode: "listen" },
      ],
      group: start.group,
      confinement: calls && start.confinement && { ...start.confinement, filter: calls.filter },
      copies: start.copies,
    });
    const files = start.copies === "clones" ? diskFiles(warden, process.pid) : null;
    const { isHeld: isStopped, isBoot } = start;
    const isFreezable = start.copies === "frozen";
    const vm = new QemuVm({ process, dir, memory, isStopped, waitsAtEnd: !isBoot, startedBy: "restore", files, isFreezable, ...paths });
    // At once, because KVM can fail at the guest's first instruction. With TCG it would only make a fork slower.
    if (shape.accelerator === "kvm" || isBoot) vm.watch();
    return vm;
  }

  async adopt(id: ProcessId, dir: string, memory: string): Promise<Vm> {
    const warden = await this.#warden();
    const isThere = async (path: string): Promise<boolean> =>
      access(path).then(
        () => true,
        () => false,
      );
    const startedBy = (await isThere(openStateFile(dir, "clone"))) ? "clone" : "restore";
    const files = (await isThere(openStateFile(dir, startedBy))) ? diskFiles(warden, id.pid) : null;
    const process = warden.adopt(id.pid, id.startTime);
    // the warden knows whether it was started for that
    const isFreezable = files === null;
    return new QemuVm({ process, dir, memory, isStopped: false, waitsAtEnd: true, startedBy, files, isFreezable, ...pathsIn(dir) });
  }
}

/** The files that a clonable VMM writes, beside its log */
function ownFiles({ dir, disk }: RestoreSpec): ChildFile[] {
  const state = { fd: FD.savedState, path: openStateFile(dir, "restore"), mode: "create" } as const;
  if (disk === null) return [state];
  return [state, { fd: FD.disk, path: disk.active.path, mode: "read-write" }, { fd: FD.layer, path: spareFile(dir), mode: "create" }];
}

/** @param mode of the active layer's file: "copy" creates it */
function copySpec({ dir, group, active }: CloneSpec, mode: "copy" | "read-write" = "copy"): WardenCloneSpec {
  const { log, qmpSocket, agentSocket } = pathsIn(dir);
  return {
    log,
    files: [
      { fd: FD.qmp, path: qmpSocket, mode: "listen" },
      { fd: FD.agent, path: agentSocket, mode: "listen" },
      { fd: FD.savedState, path: openStateFile(dir, "clone"), mode: "create" },
      ...(active === null ? [] : copiedLayer(active, mode)),
    ],
    group,
  };
}

function copiedLayer(active: Layer, mode: ChildFile["mode"]): ChildFile[] {
  return [
    { fd: FD.disk, path: active.path, mode },
    { fd: FD.layer, path: NO_LAYER, mode: "read-write" },
  ];
}

function diskFiles(warden: Warden, pid: number): DiskFiles {
  return {
    pass: async ({ path }, mode) => {
      await warden.give(pid, { fd: FD.layer, path, mode: mode === "read" ? "read" : "read-write" });
      return NEXT_LAYER;
    },
    seal: async ({ path }) => {
      try {
        await warden.seal(pid, FD.disk, path);
      } catch (error) {
        // a VMM that has ended writes nothing
        if (faultOf(error) !== "ESRCH") throw error;
      }
    },
  };
}

/** Code of the warden's error */
function faultOf(error: unknown): string | undefined {
  return error instanceof ForkdError && error.cause instanceof WardenFault ? error.cause.code : undefined;
}

function pathsIn(dir: string): { qmpSocket: string; agentSocket: string; log: string } {
  return { qmpSocket: join(dir, "qmp"), agentSocket: join(dir, "agent"), log: join(dir, "vmm.log") };
}

type VmParts = {
  process: VmmProcess;
  dir: string;
  memory: string;
  /** waits for resume() */
  isStopped: boolean;
  /** the VMM waits when its guest has ended; one that boots a guest exits, and its console is a file */
  waitsAtEnd: boolean;
  startedBy: StartedBy;
  /** null: it cannot be cloned, and opens its files by their paths */
  files: DiskFiles | null;
  isFreezable: boolean;
  qmpSocket: string;
  agentSocket: string;
  log: string;
};

class QemuVm implements Vm {
  readonly #process: VmmProcess;
  readonly #dir: string;
  readonly #qmpSocket: string;
  #qmp: Qmp | undefined;
  /** paused by forkd */
  #isStopped: boolean;
  #failure: string | null = null;
  readonly #waitsAtEnd: boolean;
  /** end of a fork's console, read when its guest ended */
  #lastConsole = "";
  #ending: Promise<void> | undefined;
  readonly pid: number;
  readonly startTime: string;
  readonly startedBy: StartedBy;
  readonly isClonable: boolean;
  readonly isFreezable: boolean;
  readonly agentSocket: string;
  readonly log: string;
  readonly console: string;
  readonly exited: Promise<VmExit>;
  readonly disk: QemuDisk;

  constructor(opts: VmParts) {
    this.#process = opts.process;
    this.#dir = opts.dir;
    this.#isStopped = opts.isStopped;
    this.#waitsAtEnd = opts.waitsAtEnd;
    this.#qmpSocket = opts.qmpSocket;
    this.startedBy = opts.startedBy;
    this.isClonable = opts.files !== null;
    this.isFreezable = opts.isFreezable;
    this.disk = new QemuDisk(async (command, schema, args) => this.#execute(command, schema, args), opts.files);
    this.agentSocket = opts.agentSocket;
    this.log = opts.log;
    this.console = consoleLog(opts.dir);
    this.pid = opts.process.pid;
    this.startTime = opts.process.startTime;
    this.exited = opts.process.exited.then(async (exit) => {
      // the last events may still be unread
      await this.#qmp?.closed;
      return {
        ...exit,
        failure: this.#failure,
        log: await this.lastLog(),
        console: (await tailOf(this.console)) || this.#lastConsole,
        isOutOfSpace: exit.signal === "SIGBUS" && (await isFull(opts.memory)),
      };
    });
  }

  async lastLog(): Promise<string> {
    return (await tailOf(this.log)).replaceAll(WAITED, "").trim();
  }

  async pause(): Promise<void> {
    this.#isStopped = true;
    // Work that QEMU had pending when the CPUs stopped, such as flushing a port's queue, is complete at the second
    // reply.
    await Promise.all([this.#execute("stop", z.unknown()), this.#execute("query-status", statusReply)]);
  }

  async saveDeviceState(): Promise<void> {
    // the default, live: true, would deactivate the block devices of a stopped VM
    await this.#execute("xen-save-devices-state", z.unknown(), {
      filename: this.isClonable ? SAVED_STATE : deviceStateFile(this.#dir),
      live: false,
    });
  }

  async takeDeviceState(to: string): Promise<void> {
    if (this.isClonable) await takeOpenState(openStateFile(this.#dir, this.startedBy), to);
    else await takeDeviceState(this.#dir, to);
  }

  async resume(): Promise<void> {
    // before the command: QEMU can report a failed guest together with the reply
    this.#isStopped = false;
    await this.#execute("cont", z.unknown());
  }

  async loaded(): Promise<void> {
    const deadline = Date.now() + LOADED_WITHIN_MS;
    while (Date.now() < deadline) {
      const { status } = await this.#execute("query-status", statusReply);
      if (status !== "inmigrate") return;
      await new Promise((resolve) => setTimeout(resolve, LOADED_POLL_MS));
    }
    throw new ForkdError("VMM_FAILED", `QEMU did not load its state within ${LOADED_WITHIN_MS} ms.`);
  }

  async prepare(): Promise<void> {
    await this.#channel().ready();
  }

  watch(): void {
    // the VM may have stopped before the listener was added; `exited` reports a VMM that has ended
    void this.#channel()
      .ready()
      .then(async () => this.#lookAtStop(new Set([...BROKEN, ENDED])))
      .catch(() => undefined);
  }

  async isRunning(): Promise<boolean> {
    const { status, running } = await this.#execute("query-status", statusReply);
    if (status !== ENDED) return running;
    await this.#leave();
    throw new ForkdError("VMM_EXITED", "its guest powered off or restarted");
  }

  async drainConsole(): Promise<Buffer> {
    const asked = { device: "console", size: CONSOLE_BYTES, format: "base64" };
    return Buffer.from(await this.#execute("ringbuf-read", consoleReply, asked), "base64");
  }

  async kill(): Promise<void> {
    await this.#process.kill("SIGKILL");
    await this.#process.exited;
    this.detach();
  }

  detach(): void {
    this.#qmp?.close();
  }

  async #execute<T extends z.ZodType>(command: string, schema: T, args?: Record<string, unknown>): Promise<z.output<T>> {
    return this.#channel().execute(command, schema, args);
  }

  #channel(): Qmp {
    this.#qmp ??= new Qmp(this.#qmpSocket, { onEvent: (name, data) => this.#hear(name, data) });
    return this.#qmp;
  }

  #hear(event: string, data: unknown): void {
    if (event === "STOP" && !this.#isStopped) void this.#lookAtStop(STOPPED).catch(() => undefined); // as above
    if (event === "GUEST_PANICKED") void this.#giveUp("the guest's kernel panicked");
    if (event === "SHUTDOWN") this.#hearEnd(shutdownSchema.safeParse(data).data?.reason);
  }

  #hearEnd(reason: string | undefined): void {
    if (reason === "guest-reset") this.#failure ??= RESTARTED;
    if (this.#waitsAtEnd && reason !== undefined && ENDED_BY_GUEST.has(reason)) void this.#leave().catch(() => undefined); // as above
  }

  /** Reads the console of a guest that ended, and ends the VMM, which waits for that */
  async #leave(): Promise<void> {
    this.#ending ??= (async () => {
      try {
        this.#lastConsole = (await this.drainConsole()).subarray(-LAST_CONSOLE_BYTES).toString("utf8").trim();
        if (AGENT_FAILED.test(this.#lastConsole)) this.#failure ??= "the guest's agent failed";
        // the event is missed if the guest ended before the channel was open
        if (PANICKED.test(this.#lastConsole)) this.#failure ??= RESTARTED;
        await this.#execute("quit", z.unknown());
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        // the channel closes before the answer, or the VMM does not answer at all
        if (error.code !== "VMM_EXITED") await this.#process.kill("SIGKILL");
      }
    })();
    await this.#ending;
  }

  /** Ends a VM that stopped without a request: its guest would never answer again */
  async #lookAtStop(statuses: ReadonlySet<string>): Promise<void> {
    const { status } = await this.#execute("query-status", statusReply);
    if (!statuses.has(status) || (this.#isStopped && status === "paused")) return;
    if (status === ENDED) return this.#leave();
    const line = /^.*\b(?:kvm|error)\b.*$/im.exec(await this.lastLog())?.[0];
    await this.#giveUp(`QEMU stopped the guest (${status})${line === undefined ? "" : `: ${line.trim()}`}`);
  }

  async #giveUp(why: string): Promise<void> {
    this.#failure ??= why;
    await this.#process.kill("SIGKILL");
  }
}
