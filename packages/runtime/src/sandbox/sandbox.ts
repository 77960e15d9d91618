// A running VM forked from a snapshot.

import { readFile as readHostFile, rm } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import { driftOf, GuestClock, sampleClock, type ClockSample } from "../agent/clock.ts";
import type { AgentConnection } from "../agent/wire/connection.ts";
import { GrowingBuffer } from "../util/growing-buffer.ts";
import { listListeners, PortFinder, type Listener } from "../agent/ports.ts";
import { GuestFiles } from "../agent/files/client.ts";
import { guestMetrics, type GuestMetrics } from "../agent/metrics.ts";
import { beFirst, goOn, holdProcesses } from "../agent/hold.ts";
import type { Contexts } from "../agent/kernel/contexts.ts";
import type { EvalResult } from "../agent/kernel/eval-output.ts";
import type { EvalOptions } from "../agent/kernel/pending-eval.ts";
import type { Language } from "../agent/kernel/language.ts";
import { ProcessRegistry } from "../agent/process/registry.ts";
import type { ExitStatus, StartOptions } from "../agent/process/exec.ts";
import { T } from "../agent/wire/protocol.ts";
import { setClock } from "../agent/resync.ts";
import { runProgram, type RunOptions } from "../agent/process/run.ts";
import { switchNetwork } from "../agent/network.ts";
import { GuestSocket, type ConnectOptions } from "../agent/socket.ts";
import type { Watch } from "../agent/process/output.ts";
import type { VmGroup } from "../host/control-groups.ts";
import type { FlatImage } from "../snapshot/flat-images.ts";
import type { Egress } from "../egress/egress.ts";
import type { NetworkPolicy } from "../egress/policy.ts";
import type { Share } from "../share/server.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { Semaphore } from "../util/semaphore.ts";
import { isolationOf, type Isolation, type Vm, type VmExit } from "../vmm/driver.ts";
import type { ForkCertificate } from "./certificate.ts";
import type { SandboxDisk } from "./disk.ts";
import { endingOf } from "./vmm-end.ts";

const CALL_TIMEOUT_MS = 30_000;
/** upper bound for the clock request when the guest does not answer */
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
  /**
   * kept bytes of stdout and of stderr (default 64 MiB each); the program continues beyond it. For more output use
   * start()
   */
  maxOutputBytes?: number;
};

export type MemoryUsage = {
  /** guest pages that this sandbox changed */
  privateGuestBytes: number;
  /** PSS of the VMM process: shared pages are divided by the number of their users */
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
  /** snapshot whose memory image it maps: its own, or one below it */
  imageOf: Snapshot;
  /** null: no disk, writes stay in guest memory */
  disk: SandboxDisk | null;
  dir: string;
  /** control group with its limits, if any */
  group: VmGroup | undefined;
  /** environment of every process in it; branches inherit it */
  env: Record<string, string>;
  network: Egress;
  /** folders of the host that it mounts */
  shares: readonly Share[];
  /** paused by a user */
  isPaused?: boolean | undefined;
  lastBranch?: string | undefined;
  forkMs: number;
  createdAt?: Date | undefined;
  onGone: (sandbox: Sandbox) => void;
};

export class Sandbox {
  readonly id: string;
  readonly snapshot: Snapshot;
  /** from the request until the sandbox was returned */
  readonly forkMs: number;
  readonly createdAt: Date;
  readonly files: GuestFiles = new GuestFiles(() => this.#agent());
  readonly #parts: SandboxParts;
  /** branches of one sandbox run one at a time */
  readonly branching = new Semaphore(1);
  /** ids of its latest branches, newest first; the next branch shares the delta files of the first that still exists */
  branches: readonly string[];
  /** why its VMM is not copied for a branch; null: it is */
  forkObstacle: string | null = null;
  readonly #ports = new PortFinder();
  readonly #processes: ProcessRegistry;
  readonly clock: GuestClock;
  #killed: Promise<void> | undefined;
  #exit: VmExit | undefined;
  #isOutOfMemory = false;
  #isPaused: boolean;

  constructor(parts: SandboxParts) {
    this.id = parts.id;
    this.snapshot = parts.snapshot;
    this.forkMs = parts.forkMs;
    this.createdAt = parts.createdAt ?? new Date();
    this.#parts = parts;
    this.#isPaused = parts.isPaused ?? false;
    this.branches = parts.lastBranch === undefined ? [] : [parts.lastBranch];
    this.#processes = new ProcessRegistry(parts.agent);
    this.clock = new GuestClock(async (timeoutMs) => sampleClock(this.#agent(), timeoutMs), parts.agent.attached);
    parts.vm.watch();
    // when the VMM ends by itself the sandbox ends too
    void parts.vm.exited.then(async (exit) => {
      this.#exit = exit;
      return this.kill();
    });
  }

  get certificate(): ForkCertificate {
    const { certificate } = this.#parts;
    const { rate } = this.clock;
    return rate ? { ...certificate, clock_drift_ppm: driftOf(rate).driftPpm, clock_measured: "sandbox" } : certificate;
  }

  get isolation(): Isolation {
    return isolationOf(this.snapshot.manifest.shape.accelerator);
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

  /** its egress: policy and connections */
  get network(): Egress {
    return this.#parts.network;
  }

  get shares(): readonly Share[] {
    return this.#parts.shares;
  }

  /** file that backs this sandbox's memory as a private mapping */
  get memoryPath(): string {
    return this.#parts.memory.path;
  }

  get imageOf(): Snapshot {
    return this.#parts.imageOf;
  }

  /** whether limits of the host apply to it */
  get isLimited(): boolean {
    return this.#parts.group !== undefined;
  }

  /** its interpreters */
  get contexts(): Contexts {
    this.#agent();
    return this.#parts.contexts;
  }

  /** exit of its VMM, once it has ended */
  get exit(): VmExit | undefined {
    return this.#exit;
  }

  /** the host kernel killed it at its memory limit; valid after it has ended */
  get isOutOfMemory(): boolean {
    return this.#isOutOfMemory;
  }

  get kernels(): Language[] {
    return this.#parts.contexts.languages;
  }

  get alive(): boolean {
    return this.#killed === undefined;
  }

  /** Runs a program to its end and collects its output */
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

  /** Starts a program and returns a handle, which must be read to its end or closed */
  async start(argv: readonly string[], opts: StartOptions = {}): Promise<Watch> {
    return this.processes.start(argv, opts);
  }

  /** Programs started in it */
  get processes(): ProcessRegistry {
    this.#agent();
    this.clock.glance();
    return this.#processes;
  }

  /**
   * Runs code in a warm interpreter: that of a context, or the first one of a language, which is started if there is
   * none
   */
  async eval(code: string, opts: EvalOptions & { context?: string; language?: Language } = {}): Promise<EvalResult> {
    this.clock.glance();
    const kernel = await this.contexts.get(opts, opts.signal);
    return kernel.eval(code, opts);
  }

  /** Opens a TCP connection to a server in the guest, at the given address or at the one on which the port is served */
  async connect(port: number, opts: ConnectOptions = {}): Promise<GuestSocket> {
    if (opts.host !== undefined) return GuestSocket.connect(this.#agent(), port, opts);
    return this.#ports.connect(this.#agent(), port, opts);
  }

  /** Listening sockets of the guest and their processes */
  async listeners(signal?: AbortSignal): Promise<Listener[]> {
    return listListeners(this.#agent(), { owners: true, signal });
  }

  /** Resource usage of the guest, without a process in it; undefined if the agent's version does not support it */
  async metrics(signal?: AbortSignal): Promise<GuestMetrics | undefined> {
    return guestMetrics(this.#agent(), this.snapshot.manifest.shape.vcpus, signal);
  }

  /** Prepares the guest for this policy; the policy is in force only after it is set */
  async prepareNetwork({ mode }: NetworkPolicy): Promise<void> {
    await switchNetwork(this.#agent(), mode !== "none", CALL_TIMEOUT_MS);
  }

  /** One round trip to the agent */
  async ping(timeoutMs: number = CALL_TIMEOUT_MS): Promise<void> {
    await this.#agent().call(T.PING, Buffer.alloc(0), { timeoutMs });
  }

  /** Stops reading the guest's output until the result is disposed; required before the VM is stopped for a snapshot */
  holdOutput(): Disposable {
    return this.#agent().hold();
  }

  /**
   * Before a branch: the agent gets priority over all processes, here and in forks, until the branch is over. Returns a
   * clock sample
   */
  async expectBranch(): Promise<ClockSample | undefined> {
    return beFirst(this.#agent(), CLOCK_WITHIN_MS);
  }

  /** Holds every process in it until afterBranch(), and in forks until their clock and randomness are reset */
  async holdProcesses(): Promise<void> {
    await holdProcesses(this.#agent(), CALL_TIMEOUT_MS);
  }

  async afterBranch(): Promise<void> {
    if (this.alive) await goOn(this.#parts.agent, CLOCK_WITHIN_MS);
  }

  /** Stops its CPUs and its clocks */
  async pause(): Promise<void> {
    await this.#parts.vm.pause();
    this.#isPaused = true;
    this.clock.restart();
  }

  async resume(): Promise<void> {
    await this.#parts.vm.resume();
    this.#isPaused = false;
    this.clock.restart();
  }

  /**
   * Sets the wall clock, which does not advance while the sandbox is paused. If the guest does not answer, its time
   * stays wrong
   */
  async setClock(): Promise<void> {
    try {
      const { sample } = await setClock(this.#agent(), CLOCK_WITHIN_MS);
      this.clock.restart(sample);
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  /**
   * Sets the wall clock of a running sandbox unless a branch is in progress: a message to a stopped VM would be part of
   * the snapshot
   */
  async keepClock(): Promise<void> {
    await this.branching.run(async () => {
      if (this.#isPaused || !this.alive) return;
      try {
        await setClock(this.#agent(), CLOCK_WITHIN_MS);
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
      }
    });
  }

  async memoryUsage(): Promise<MemoryUsage> {
    this.#agent();
    return memoryUsageOf(this.#parts.vm.pid, this.memoryPath);
  }

  /** Asks the guest to power off and waits for the exit; kills it after 30 s if it agreed but did not end */
  async powerOff(): Promise<void> {
    await this.#agent().call(T.POWEROFF, Buffer.alloc(0), { timeoutMs: CALL_TIMEOUT_MS });
    const late = new Promise((resolve) => void setTimeout(resolve, POWER_OFF_WITHIN_MS).unref());
    await Promise.race([this.#parts.vm.exited, late]);
    await this.kill();
  }

  /** Ends the sandbox; resolves when process, sockets and files are removed */
  async kill(): Promise<void> {
    this.#killed ??= this.#release();
    return this.#killed;
  }

  /** Releases the VM without ending it: the next process adopts it */
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
    if (!this.#killed) return this.#parts.agent;
    const why = this.#exit ? `: ${endingOf(this.#exit)}` : "";
    throw new ForkdError("VMM_EXITED", `Sandbox ${this.id} has ended${why}.`);
  }
}

/** From /proc/PID/smaps: the anonymous part of the memory file's mapping, and the PSS of the process */
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
