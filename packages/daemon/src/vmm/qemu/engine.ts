// The engine that runs VMs with stock QEMU, under KVM or its own translator.

import { join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { tailOf } from "../../util/tail.ts";
import type { VmmProcess, Warden } from "../../memory/warden.ts";
import type { BootSpec, Engine, RestoreSpec, Vm, VmExit } from "../driver.ts";
import { bootArgs, FD, restoreArgs } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { Qmp } from "./qmp.ts";

const LOADED_POLL_MS = 2;
const LOADED_WITHIN_MS = 30_000;

export class QemuEngine implements Engine {
  readonly #qemu: QemuBinary;
  readonly #warden: Warden;

  constructor(opts: { qemu: QemuBinary; warden: Warden }) {
    this.#qemu = opts.qemu;
    this.#warden = opts.warden;
  }

  async boot(spec: BootSpec): Promise<Vm> {
    return this.#start(spec.dir, bootArgs(spec), []);
  }

  async restore(spec: RestoreSpec): Promise<Vm> {
    return this.#start(spec.dir, restoreArgs(spec, this.#qemu.version), [{ fd: FD.state, path: spec.deviceState, mode: "read" }]);
  }

  async #start(dir: string, args: string[], files: { fd: number; path: string; mode: "read" }[]): Promise<Vm> {
    const qmpSocket = join(dir, "qmp");
    const agentSocket = join(dir, "agent");
    const log = join(dir, "vmm.log");
    const process = await this.#warden.spawn({
      argv: [this.#qemu.path, ...args],
      // QEMU needs nothing of our environment
      env: { LC_ALL: "C" },
      cwd: dir,
      log,
      files: [...files, { fd: FD.qmp, path: qmpSocket, mode: "listen" }, { fd: FD.agent, path: agentSocket, mode: "listen" }],
    });
    return new QemuVm({ process, qmpSocket, agentSocket, log });
  }
}

class QemuVm implements Vm {
  readonly #process: VmmProcess;
  readonly #qmpSocket: string;
  #qmp: Qmp | undefined;
  readonly pid: number;
  readonly agentSocket: string;
  readonly exited: Promise<VmExit>;

  constructor(opts: { process: VmmProcess; qmpSocket: string; agentSocket: string; log: string }) {
    this.#process = opts.process;
    this.#qmpSocket = opts.qmpSocket;
    this.agentSocket = opts.agentSocket;
    this.pid = opts.process.pid;
    this.exited = opts.process.exited.then(async (exit) => ({ ...exit, log: await tailOf(opts.log) }));
  }

  async pause(): Promise<void> {
    await this.#execute("stop");
  }

  async saveDeviceState(path: string): Promise<void> {
    // live left out would deactivate the block devices of a stopped VM
    await this.#execute("xen-save-devices-state", { filename: path, live: false });
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

  async kill(): Promise<void> {
    await this.#process.kill("SIGKILL");
    await this.#process.exited;
    this.#qmp?.close();
  }

  async #execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    this.#qmp ??= new Qmp(this.#qmpSocket);
    return this.#qmp.execute(command, args);
  }
}
