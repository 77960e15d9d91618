// The engine that runs VMs with stock QEMU, under KVM or its own translator.

import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../../errors.ts";
import type { ProcessId } from "../../util/process-id.ts";
import { tailOf } from "../../util/tail.ts";
import type { SpawnSpec, VmmProcess } from "../../memory/warden.ts";
import type { WardenSource } from "../../memory/warden-source.ts";
import type { BootSpec, ConfinementState, Engine, RestoreSpec, Vm, VmExit } from "../driver.ts";
import { bootArgs, CONSOLE_BYTES, FD, restoreArgs } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { bootConfinement, confinedEnv, restoreConfinement } from "./confinement.ts";
import { QemuDisk } from "./disk.ts";
import { consoleLog, deviceStateFile, ownDir, takeDeviceState } from "./own-dir.ts";
import { Qmp } from "./qmp.ts";

const LOADED_POLL_MS = 2;
const LOADED_WITHIN_MS = 30_000;
const MIB = 1024 * 1024;

type Start = Pick<SpawnSpec, "confinement" | "group" | "env" | "files">;

export class QemuEngine implements Engine {
  readonly #qemu: QemuBinary;
  readonly #warden: WardenSource;
  readonly #isConfined: boolean;
  readonly #check: () => void;

  /** @param opts.check throws where no VM may be started */
  constructor(opts: { qemu: QemuBinary; warden: WardenSource; confinement: ConfinementState["kind"]; check?: () => void }) {
    this.#qemu = opts.qemu;
    this.#warden = opts.warden;
    this.#isConfined = opts.confinement === "namespaces";
    this.#check = opts.check ?? (() => undefined);
  }

  async boot(spec: BootSpec): Promise<Vm> {
    // made for it: it may write the file, but not into the folder
    await using memory = await open(spec.memory, "wx", 0o600);
    await memory.truncate(spec.shape.memoryMiB * MIB);
    return this.#start(spec.dir, bootArgs(spec), { env: {}, files: [], confinement: bootConfinement(spec, this.#qemu) });
  }

  async restore(spec: RestoreSpec): Promise<Vm> {
    return this.#start(spec.dir, restoreArgs(spec, this.#qemu.version), {
      env: confinedEnv(spec.memory, this.#qemu),
      files: [{ fd: FD.state, path: spec.deviceState, mode: "read" }],
      group: spec.group,
      confinement: restoreConfinement(spec, this.#qemu),
    });
  }

  async #start(dir: string, args: string[], start: Start): Promise<Vm> {
    this.#check();
    const paths = pathsIn(dir);
    await mkdir(ownDir(dir), { mode: 0o700 });
    const warden = await this.#warden();
    const process = await warden.spawn({
      argv: [this.#qemu.path, ...args],
      // QEMU needs nothing of our environment
      env: { LC_ALL: "C", ...(this.#isConfined ? start.env : {}) },
      cwd: ownDir(dir),
      log: paths.log,
      files: [
        ...(start.files ?? []),
        { fd: FD.qmp, path: paths.qmpSocket, mode: "listen" },
        { fd: FD.agent, path: paths.agentSocket, mode: "listen" },
      ],
      group: start.group,
      confinement: this.#isConfined ? start.confinement : undefined,
    });
    return new QemuVm({ process, dir, ...paths });
  }

  async adopt(id: ProcessId, dir: string): Promise<Vm> {
    const warden = await this.#warden();
    return new QemuVm({ process: warden.adopt(id.pid, id.startTime), dir, ...pathsIn(dir) });
  }
}

function pathsIn(dir: string): { qmpSocket: string; agentSocket: string; log: string } {
  return { qmpSocket: join(dir, "qmp"), agentSocket: join(dir, "agent"), log: join(dir, "vmm.log") };
}

class QemuVm implements Vm {
  readonly #process: VmmProcess;
  readonly #dir: string;
  readonly #qmpSocket: string;
  #qmp: Qmp | undefined;
  readonly pid: number;
  readonly startTime: string;
  readonly agentSocket: string;
  readonly log: string;
  readonly exited: Promise<VmExit>;
  readonly disk: QemuDisk = new QemuDisk(async (command, args) => this.#execute(command, args));

  constructor(opts: { process: VmmProcess; dir: string; qmpSocket: string; agentSocket: string; log: string }) {
    this.#process = opts.process;
    this.#dir = opts.dir;
    this.#qmpSocket = opts.qmpSocket;
    this.agentSocket = opts.agentSocket;
    this.log = opts.log;
    this.pid = opts.process.pid;
    this.startTime = opts.process.startTime;
    this.exited = opts.process.exited.then(async (exit) => ({
      ...exit,
      log: await tailOf(opts.log),
      console: await tailOf(consoleLog(opts.dir)),
    }));
  }

  async pause(): Promise<void> {
    await this.#execute("stop");
  }

  async saveDeviceState(): Promise<void> {
    // live left out would deactivate the block devices of a stopped VM
    await this.#execute("xen-save-devices-state", { filename: deviceStateFile(this.#dir), live: false });
  }

  async takeDeviceState(to: string): Promise<void> {
    await takeDeviceState(this.#dir, to);
  }

  async resume(): Promise<void> {
    await this.#execute("cont");
  }

  async loaded(): Promise<void> {
    const deadline = Date.now() + LOADED_WITHIN_MS;
    while (Date.now() < deadline) {
      const { status } = (await this.#execute("query-status")) as { status: string };
      if (status !== "inmigrate") return;
      await new Promise((resolve) => setTimeout(resolve, LOADED_POLL_MS));
    }
    throw new ForkdError("VMM_FAILED", `QEMU did not load its state within ${LOADED_WITHIN_MS} ms.`);
  }

  async prepare(): Promise<void> {
    this.#qmp ??= new Qmp(this.#qmpSocket);
    await this.#qmp.ready();
  }

  async isRunning(): Promise<boolean> {
    const { running } = (await this.#execute("query-status")) as { running: boolean };
    return running;
  }

  async drainConsole(): Promise<Buffer> {
    const text = (await this.#execute("ringbuf-read", { device: "console", size: CONSOLE_BYTES, format: "base64" })) as string;
    return Buffer.from(text, "base64");
  }

  async kill(): Promise<void> {
    await this.#process.kill("SIGKILL");
    await this.#process.exited;
    this.detach();
  }

  detach(): void {
    this.#qmp?.close();
  }

  async #execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    this.#qmp ??= new Qmp(this.#qmpSocket);
    return this.#qmp.execute(command, args);
  }
}
