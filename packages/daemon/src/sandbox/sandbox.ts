// A running VM forked from a snapshot.

import { readFile as readHostFile, rm } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import type { AgentConnection } from "../guest/connection.ts";
import { readFile, readFileChunks, statFile, writeFile, type FileInfo, type WriteOptions } from "../guest/files.ts";
import type { EvalOptions, EvalResult, Kernel, KernelFacts, Language } from "../guest/kernel.ts";
import { GuestProcess, listProcesses, type ExitStatus, type ProcessInfo, type StartOptions } from "../guest/process.ts";
import { T } from "../guest/protocol.ts";
import { setClock } from "../guest/resync.ts";
import type { FlatImage } from "../memory/flat.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { Vm } from "../vmm/driver.ts";
import type { ForkCertificate } from "./certificate.ts";

const CALL_TIMEOUT_MS = 30_000;

export type ExecResult = ExitStatus & { stdout: Buffer; stderr: Buffer };

export type ExecOptions = Omit<StartOptions, "stdin" | "control" | "onOutput" | "tag"> & { stdin?: string | Uint8Array };

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
  kernels: Map<Language, Kernel>;
  certificate: ForkCertificate;
  memory: FlatImage;
  dir: string;
  forkMs: number;
  onGone: (sandbox: Sandbox) => void;
};

export class Sandbox {
  readonly id: string;
  readonly snapshot: Snapshot;
  readonly certificate: ForkCertificate;
  /** from the request to the moment it was handed over */
  readonly forkMs: number;
  readonly createdAt = new Date();
  readonly #parts: SandboxParts;
  /** branches of one sandbox come one after another */
  readonly branching = new Semaphore(1);
  #killed: Promise<void> | undefined;

  constructor(parts: SandboxParts) {
    this.id = parts.id;
    this.snapshot = parts.snapshot;
    this.certificate = parts.certificate;
    this.forkMs = parts.forkMs;
    this.#parts = parts;
    // a VMM that ends by itself takes its sandbox along
    void parts.vm.exited.then(async () => this.kill());
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

  /** the file whose private view is this sandbox's memory */
  get memoryPath(): string {
    return this.#parts.memory.path;
  }

  get kernelFacts(): KernelFacts[] {
    return [...this.#parts.kernels.values()].map((kernel) => kernel.facts);
  }

  get alive(): boolean {
    return this.#killed === undefined;
  }

  /** Runs a program to its end and collects what it prints */
  async exec(argv: readonly string[], opts: ExecOptions = {}): Promise<ExecResult> {
    const out: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
    const { stdin, ...rest } = opts;
    const process = await this.start(argv, {
      ...rest,
      stdin: stdin === undefined ? "null" : "open",
      onOutput: (channel, bytes) => {
        if (channel !== "control") out[channel].push(bytes);
      },
    });
    const feeding = stdin === undefined ? undefined : feed(process, stdin);
    const abort = (): void => process.kill("SIGKILL", "group");
    opts.signal?.addEventListener("abort", abort, { once: true });
    try {
      const status = await process.exited();
      opts.signal?.throwIfAborted();
      return { ...status, stdout: Buffer.concat(out.stdout), stderr: Buffer.concat(out.stderr) };
    } finally {
      opts.signal?.removeEventListener("abort", abort);
      await feeding;
    }
  }

  /** Starts a program and gives a handle to it */
  async start(argv: readonly string[], opts: StartOptions = {}): Promise<GuestProcess> {
    return GuestProcess.start(this.#agent(), argv, opts);
  }

  async processes(): Promise<ProcessInfo[]> {
    return listProcesses(this.#agent(), CALL_TIMEOUT_MS);
  }

  /** Runs code in a warm interpreter; `language` is needed only when the snapshot has several */
  async eval(code: string, opts: EvalOptions & { language?: Language } = {}): Promise<EvalResult> {
    this.#agent();
    const [first] = this.#parts.kernels.keys();
    const kernel = this.#parts.kernels.get(opts.language ?? first ?? "python");
    if (!kernel) throw new ForkdError("KERNEL_MISSING", `Sandbox ${this.id} has no ${opts.language ?? "python"} kernel.`);
    return kernel.eval(code, opts);
  }

  async readFile(path: string): Promise<Buffer> {
    return readFile(this.#agent(), path);
  }

  readFileChunks(path: string, range?: { offset?: number; length?: number }): AsyncGenerator<Buffer> {
    return readFileChunks(this.#agent(), path, range);
  }

  async writeFile(path: string, content: string | Uint8Array | AsyncIterable<Uint8Array>, opts?: WriteOptions): Promise<number> {
    return writeFile(this.#agent(), path, content, opts);
  }

  async stat(path: string): Promise<FileInfo> {
    return statFile(this.#agent(), path, CALL_TIMEOUT_MS);
  }

  /** One round trip to the agent */
  async ping(timeoutMs: number = CALL_TIMEOUT_MS): Promise<void> {
    await this.#agent().call(T.PING, Buffer.alloc(0), { timeoutMs });
  }

  /** Sets the wall clock, which stands still while the sandbox is paused; a guest that does not answer keeps the wrong time */
  async setClock(): Promise<void> {
    try {
      await setClock(this.#agent(), CALL_TIMEOUT_MS);
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  async memoryUsage(): Promise<MemoryUsage> {
    this.#agent();
    return memoryUsageOf(this.#parts.vm.pid, this.memoryPath);
  }

  /** Asks the guest to power off and waits until it is gone */
  async powerOff(): Promise<void> {
    await this.#agent().call(T.POWEROFF, Buffer.alloc(0), { timeoutMs: CALL_TIMEOUT_MS });
    await this.#parts.vm.exited;
    await this.kill();
  }

  /** Ends the sandbox; resolves when process, sockets and files are gone */
  async kill(): Promise<void> {
    this.#killed ??= this.#release();
    return this.#killed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #release(): Promise<void> {
    this.#parts.agent.close();
    await this.#parts.vm.kill();
    await rm(this.#parts.dir, { recursive: true, force: true });
    this.#parts.memory.release();
    this.#parts.onGone(this);
  }

  #agent(): AgentConnection {
    if (this.#killed) throw new ForkdError("VMM_EXITED", `Sandbox ${this.id} has ended.`);
    return this.#parts.agent;
  }
}

async function feed(process: GuestProcess, stdin: string | Uint8Array): Promise<void> {
  try {
    await process.write(stdin);
    process.closeStdin();
  } catch (error) {
    // a program need not read its input to the end
    if (!(error instanceof ForkdError)) throw error;
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
