// A running VM forked from a snapshot.

import { readFile as readHostFile, rm } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import type { AgentConnection } from "../guest/connection.ts";
import { GrowingBuffer } from "../guest/growing-buffer.ts";
import { listListeners, PortFinder, type Listener } from "../guest/listeners.ts";
import { GuestFiles } from "../guest/guest-files.ts";
import type { Contexts } from "../guest/contexts.ts";
import type { EvalResult } from "../guest/eval-output.ts";
import type { EvalOptions } from "../guest/pending-eval.ts";
import type { Language } from "../guest/language.ts";
import { ProcessHub } from "../guest/hub.ts";
import type { ExitStatus, StartOptions } from "../guest/program.ts";
import { T } from "../guest/protocol.ts";
import { setClock } from "../guest/resync.ts";
import { runProgram, type RunOptions } from "../guest/run.ts";
import { switchNetwork } from "../guest/network.ts";
import { GuestSocket, type ConnectOptions } from "../guest/socket.ts";
import type { Watch } from "../guest/watch.ts";
import type { VmGroup } from "../host/control-groups.ts";
import type { FlatImage } from "../memory/flat.ts";
import type { Egress } from "../net/egress.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { Share } from "../share/server.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { Vm, VmExit } from "../vmm/driver.ts";
import type { ForkCertificate } from "./certificate.ts";
import type { SandboxDisk } from "./disk.ts";

const CALL_TIMEOUT_MS = 30_000;
/** whoever waits for it waits no longer for a guest that does not answer */
const CLOCK_WITHIN_MS = 2000;
const POWER_OFF_WITHIN_MS = 30_000;
const MAX_EXEC_OUTPUT = 64 * 1024 * 1024;

export type ExecResult = ExitStatus & {
  stdout: Buffer;
  stderr: Buffer;
  /** output beyond `maxOutputBytes` was dropped */
  truncated: boolean;
};

export type ExecOptions = Omit<RunOptions, "onOutput" | "tag" | "terminal"> & {
  /** how much of stdout, and how much of stderr, is kept (64 MiB); the program runs on all the same. For more, start() and read as it comes */
  maxOutputBytes?: number;
};

export type MemoryUsage = {
  /** guest pages this sandbox changed */
  privateGuestBytes: number;
  /** everything of the VMM process, shared pages divided by their users */
  pssBytes: number;
};

export type SandboxParts = {
  id: string;
  snapshot: Snapshot;
  vm: Vm;
  agent: AgentConnection;
  contexts: Contexts;
  certificate: ForkCertificate;
  memory: FlatImage;
  /** null: what it writes is in its memory */
  disk: SandboxDisk | null;
  dir: string;
  /** where its limits are, if it has any */
  group: VmGroup | undefined;
  /** what every process in it gets; its branches begin with the same */
  env: Record<string, string>;
  network: Egress;
  /** folders of the host that it sees */
  shares: readonly Share[];
  forkMs: number;
  createdAt?: Date | undefined;
  onGone: (sandbox: Sandbox) => void;
};

export class Sandbox {
  readonly id: string;
  readonly snapshot: Snapshot;
  readonly certificate: ForkCertificate;
  /** from the request to the moment it was handed over */
  readonly forkMs: number;
  readonly createdAt: Date;
  readonly files: GuestFiles = new GuestFiles(() => this.#agent());
  readonly #parts: SandboxParts;
  /** branches of one sandbox come one after another */
  readonly branching = new Semaphore(1);
  readonly #ports = new PortFinder();
  readonly #processes: ProcessHub;
  #killed: Promise<void> | undefined;
  #exit: VmExit | undefined;
  #isOutOfMemory = false;

  constructor(parts: SandboxParts) {
    this.id = parts.id;
    this.snapshot = parts.snapshot;
    this.certificate = parts.certificate;
    this.forkMs = parts.forkMs;
    this.createdAt = parts.createdAt ?? new Date();
    this.#parts = parts;
    this.#processes = new ProcessHub(parts.agent);
    // a VMM that ends by itself takes its sandbox along
    void parts.vm.exited.then(async (exit) => {
      this.#exit = exit;
      return this.kill();
    });
  }

  get isolation(): "kvm" | "emulated" {
    return this.snapshot.manifest.shape.accelerator === "kvm" ? "kvm" : "emulated";
  }

  get vm(): Vm {
    return this.#parts.vm;
  }

  get dir(): string {
    return this.#parts.dir;
  }

  get disk(): SandboxDisk | null {
    return this.#parts.disk;
  }

  get env(): Record<string, string> {
    return this.#parts.env;
  }

  /** its way out: what it may connect to, and what it did */
  get network(): Egress {
    return this.#parts.network;
  }

  get shares(): readonly Share[] {
    return this.#parts.shares;
  }

  /** the file whose private view is this sandbox's memory */
  get memoryPath(): string {
    return this.#parts.memory.path;
  }

  /** its interpreters */
  get contexts(): Contexts {
    this.#agent();
    return this.#parts.contexts;
  }

  /** how its VMM ended, once it has */
  get exit(): VmExit | undefined {
    return this.#exit;
  }

  /** the kernel ended it because it went over its memory limit; known once it is gone */
  get isOutOfMemory(): boolean {
    return this.#isOutOfMemory;
  }

  get kernels(): Language[] {
    return this.#parts.contexts.languages;
  }

  get alive(): boolean {
    return this.#killed === undefined;
  }

  /** Runs a program to its end and collects what it prints */
  async exec(argv: readonly string[], opts: ExecOptions = {}): Promise<ExecResult> {
    const { maxOutputBytes = MAX_EXEC_OUTPUT, ...rest } = opts;
    const out = { stdout: new GrowingBuffer(), stderr: new GrowingBuffer() };
    let truncated = false;
    const onOutput: RunOptions["onOutput"] = (channel, bytes) => {
      if (!out[channel].add(bytes, maxOutputBytes)) truncated = true;
    };
    const status = await runProgram(this.processes, argv, { ...rest, onOutput });
    return { ...status, stdout: out.stdout.bytes(), stderr: out.stderr.bytes(), truncated };
  }

  /** Starts a program and gives a handle to it, which must be read to its end or closed */
  async start(argv: readonly string[], opts: StartOptions = {}): Promise<Watch> {
    return this.processes.start(argv, opts);
  }

  /** The programs that were started in it */
  get processes(): ProcessHub {
    this.#agent();
    return this.#processes;
  }

  /** Runs code in a warm interpreter: that of a context, or the first one of a language, which is started when there is none yet */
  async eval(code: string, opts: EvalOptions & { context?: string; language?: Language } = {}): Promise<EvalResult> {
    const kernel = await this.contexts.get(opts, opts.signal);
    return kernel.eval(code, opts);
  }

  /** A TCP connection to a server in the guest: at the given address, else at the one on which the port is served */
  async connect(port: number, opts: ConnectOptions = {}): Promise<GuestSocket> {
    if (opts.host !== undefined) return GuestSocket.connect(this.#agent(), port, opts);
    return this.#ports.connect(this.#agent(), port, opts);
  }

  /** What listens in it, and which processes do */
  async listeners(signal?: AbortSignal): Promise<Listener[]> {
    return listListeners(this.#agent(), { owners: true, signal });
  }

  /** Makes its guest ready for this policy, which is not in force before it is set */
  async prepareNetwork({ mode }: NetworkPolicy): Promise<void> {
    await switchNetwork(this.#agent(), mode !== "none", CALL_TIMEOUT_MS);
  }

  /** One round trip to the agent */
  async ping(timeoutMs: number = CALL_TIMEOUT_MS): Promise<void> {
    await this.#agent().call(T.PING, Buffer.alloc(0), { timeoutMs });
  }

  /** Sets the wall clock, which stands still while the sandbox is paused; a guest that does not answer keeps the wrong time */
  async setClock(): Promise<void> {
    try {
      await setClock(this.#agent(), CLOCK_WITHIN_MS);
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  async memoryUsage(): Promise<MemoryUsage> {
    this.#agent();
    return memoryUsageOf(this.#parts.vm.pid, this.memoryPath);
  }

  /** Asks the guest to power off and waits until it is gone; one that says yes and stays is killed after 30 s */
  async powerOff(): Promise<void> {
    await this.#agent().call(T.POWEROFF, Buffer.alloc(0), { timeoutMs: CALL_TIMEOUT_MS });
    const late = new Promise((resolve) => void setTimeout(resolve, POWER_OFF_WITHIN_MS).unref());
    await Promise.race([this.#parts.vm.exited, late]);
    await this.kill();
  }

  /** Ends the sandbox; resolves when process, sockets and files are gone */
  async kill(): Promise<void> {
    this.#killed ??= this.#release();
    return this.#killed;
  }

  /** Lets go of it without ending it: its VM is left to the next process */
  detach(): void {
    this.#killed ??= Promise.resolve();
    this.#parts.agent.close();
    this.#parts.vm.detach();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #release(): Promise<void> {
    const { group } = this.#parts;
    this.#parts.agent.close();
    await this.#parts.vm.kill();
    await rm(this.#parts.dir, { recursive: true, force: true });
    await this.#parts.disk?.remove();
    this.#isOutOfMemory = (await group?.isOutOfMemory()) ?? false;
    await group?.remove();
    this.#parts.memory.release();
    this.#parts.onGone(this);
  }

  #agent(): AgentConnection {
    if (this.#killed) throw new ForkdError("VMM_EXITED", `Sandbox ${this.id} has ended.`);
    return this.#parts.agent;
  }
}

/** From /proc/PID/smaps: the anonymous part of the memory file's mapping, and the share of everything */
async function memoryUsageOf(pid: number, memoryPath: string): Promise<MemoryUsage> {
  const usage = { privateGuestBytes: 0, pssBytes: 0 };
  let guest = false;
  for (const line of (await readHostFile(`/proc/${pid}/smaps`, "utf8")).split("\n")) {
    if (/^[0-9a-f]+-[0-9a-f]+ /.test(line)) guest = line.endsWith(memoryPath);
    const kib = /^(Pss|Anonymous): +(\d+) kB/.exec(line);
    if (!kib) continue;
    if (kib[1] === "Pss") usage.pssBytes += Number(kib[2]) * 1024;
    else if (guest) usage.privateGuestBytes += Number(kib[2]) * 1024;
  }
  return usage;
}
