// Client of the warden, the small host process that is the parent of all VMMs and does the memory work of branches.

import { constants } from "node:os";
import path from "node:path";
import { ForkdError, type ErrorCode } from "../errors.ts";
import { Writer, type Reader } from "../guest/codec.ts";
import { signalName } from "../util/signal-name.ts";
import { WardenChannel, WardenFault, type Failure } from "./warden-channel.ts";
import { dial, startAtPipes, startListening, type ListenOptions, type Transport } from "./warden-transport.ts";

const OP = {
  signal: 2,
  captureBegin: 3,
  captureFinish: 4,
  captureCommit: 5,
  captureAbort: 6,
  flatten: 7,
  info: 8,
  trim: 9,
  list: 10,
  end: 11,
  spawn: 12,
} as const;
const FILE_MODE = { read: 0, "read-write": 1, create: 2, listen: 3 } as const;

/** A warden that was told to end only has to kill and reap */
const CLOSE_WITHIN_MS = 10_000;
/** It is never busy for long, but it may be stopped */
const GREET_WITHIN_MS = 10_000;
const CONNECT_ATTEMPTS = 3;

/** A file the child finds open at `fd` (3 to 255); "listen" makes a Unix socket at the path, connectable at once */
export type ChildFile = { fd: number; path: string; mode: keyof typeof FILE_MODE };

/** What a process sees of the host that runs in namespaces of its own; all paths are absolute and the same inside */
export type Confinement = {
  /** folders and files */
  writable: readonly string[];
  /** folders and files, beside the programs and libraries of the system */
  readable: readonly string[];
  /** beside null, zero and urandom */
  devices: readonly string[];
  /** the longest file that it may write */
  maxFileBytes: number;
};

export type SpawnSpec = {
  /** argv[0] is an absolute path */
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** stdout and stderr are appended there */
  log: string;
  files?: readonly ChildFile[];
  /** folder of the control group in which it starts */
  group?: string | undefined;
  /** without it, it can do whatever this process can */
  confinement?: Confinement | undefined;
};

export type Exit = { code: number | null; signal: string | null };

export type VmmProcess = {
  readonly pid: number;
  /** In clock ticks since boot, as in /proc; with the pid it names one process until the next boot */
  readonly startTime: string;
  /** When the warden died, the process died with it and nobody knows how; after disconnect() it never resolves */
  readonly exited: Promise<Exit>;
  /** Resolves when the signal is sent or the process is gone already */
  kill(signal?: NodeJS.Signals): Promise<void>;
};

export type CaptureSpec = { pid: number; ramPath: string; ramBytes: number; deltaPath: string };

export type Capture = {
  /** Pages in the first copy */
  readonly pages: number;
  readonly micros: number;
  /** To be called while the VM is stopped */
  finish(): Promise<{ pages: number; recopied: number; micros: number }>;
  /** Completes the delta file; to be called when the VM runs again */
  commit(): Promise<{ bytes: number; pages: number }>;
  /** Removes the delta file unless it was committed; always resolves */
  abort(): Promise<void>;
};

export type WardenInfo = { captureMethod: string; scanMethod: string; threads: number; pid: number };

/** A process that the warden has started, for this client or an earlier one; `exit` when it runs no more */
export type WardenChild = { pid: number; startTime: string; running: boolean; exit?: Exit };

type Child = { process: VmmProcess; settle: (exit: Exit) => void };

export class Warden implements AsyncDisposable {
  readonly #channel: WardenChannel;
  /** Those that run */
  readonly #children = new Map<number, Child>();
  /** Those that ran when the warden was last asked, also if they have ended since */
  #listed = new Map<number, VmmProcess>();
  #pid: number | undefined;
  #left = false;
  /** It was there already, maybe with processes of an earlier client */
  readonly adopted: boolean;

  /** Starts a warden that ends with this process */
  static async start(opts: { binary: string }): Promise<Warden> {
    const warden = new Warden(startAtPipes(opts.binary), false);
    try {
      await warden.info();
    } catch (error) {
      await warden.close();
      throw error;
    }
    return warden;
  }

  /** Connects to the warden at a socket, which is started when there is none and outlives this process; its client until now loses it */
  static async connect(opts: ListenOptions): Promise<Warden> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await join(opts, async (transport, adopted) => new Warden(transport, adopted).#greet());
      } catch (error) {
        // it may have been about to end when we came, or another starter was faster than ours: then the next attempt is better
        if (attempt === CONNECT_ATTEMPTS) throw error;
      }
    }
  }

  private constructor(transport: Transport, adopted: boolean) {
    this.adopted = adopted;
    this.#channel = new WardenChannel(transport, {
      exit: (pid, code, signal) => this.#exited(pid, exitOf(code, signal)),
      over: () => this.#forgetAll(),
    });
  }

  /** Resolves with the reason when the warden, or the connection to it, is gone and nobody here wanted that */
  get lost(): Promise<string> {
    return this.#channel.lost;
  }

  async spawn(spec: SpawnSpec, failure: ErrorCode = "VMM_FAILED"): Promise<VmmProcess> {
    const payload = new Writer()
      .list(spec.argv, (writer, arg) => void writer.str(arg))
      .list(Object.entries(spec.env), (writer, [key, value]) => void writer.str(`${key}=${value}`))
      .str(spec.cwd)
      .str(spec.log)
      .list(spec.files ?? [], (writer, file) => void writer.u32(file.fd).str(file.path).u8(FILE_MODE[file.mode]))
      .u8(spec.group === undefined ? 0 : 1);
    if (spec.group !== undefined) payload.str(path.join(spec.group, "cgroup.procs"));
    putConfinement(payload, spec.confinement);
    const what = `Cannot start ${spec.argv[0]}`;
    return this.#channel.request(OP.spawn, payload, { code: failure, what }, (reader) =>
      this.#processOf(reader.u32(), String(reader.u64())),
    );
  }

  /** Copies the private pages of a running VM's RAM into a delta file that commit() completes */
  async captureBegin(spec: CaptureSpec, failure: ErrorCode = "BRANCH_FAILED"): Promise<Capture> {
    const payload = new Writer().u32(spec.pid).str(spec.ramPath).u64(BigInt(spec.ramBytes)).str(spec.deltaPath);
    const failed = { code: failure, what: `Cannot capture the memory of process ${spec.pid}` };
    const begun = await this.#channel.request(OP.captureBegin, payload, failed, (reader) => ({
      id: reader.u64(),
      pages: Number(reader.u64()),
      micros: Number(reader.u64()),
    }));
    const step = <T>(op: number, parse: (reader: Reader) => T): Promise<T> =>
      this.#channel.request(op, new Writer().u64(begun.id), failed, parse);
    return {
      pages: begun.pages,
      micros: begun.micros,
      finish: () =>
        step(OP.captureFinish, (reader) => ({ pages: Number(reader.u64()), recopied: Number(reader.u64()), micros: Number(reader.u64()) })),
      commit: () => step(OP.captureCommit, (reader) => ({ bytes: Number(reader.u64()), pages: Number(reader.u64()) })),
      // it fails only when there is nothing to abort
      abort: () => step(OP.captureAbort, () => undefined).catch(() => undefined),
    };
  }

  /** Writes `out`, which must not exist: the base with the deltas applied, oldest first */
  async flatten(
    spec: { base: string; deltas: readonly string[]; out: string },
    failure: ErrorCode = "BRANCH_FAILED",
  ): Promise<{ bytes: number; reflinked: boolean; micros: number }> {
    const payload = new Writer()
      .str(spec.base)
      .list(spec.deltas, (writer, path) => void writer.str(path))
      .str(spec.out);
    return this.#channel.request(OP.flatten, payload, { code: failure, what: `Cannot write the memory image ${spec.out}` }, (reader) => ({
      bytes: Number(reader.u64()),
      reflinked: reader.u8() === 1,
      micros: Number(reader.u64()),
    }));
  }

  /** Gives back the disk space of the zero pages of a file */
  async trim(path: string, failure: ErrorCode = "BRANCH_FAILED"): Promise<{ freed: number; micros: number }> {
    return this.#channel.request(OP.trim, new Writer().str(path), { code: failure, what: `Cannot trim ${path}` }, (reader) => ({
      freed: Number(reader.u64()),
      micros: Number(reader.u64()),
    }));
  }

  async info(): Promise<WardenInfo> {
    const failure: Failure = { code: "WARDEN_FAILED", what: "Cannot ask the warden" };
    return this.#channel.request(OP.info, new Writer(), failure, (reader) => ({
      captureMethod: reader.str(),
      scanMethod: reader.str(),
      threads: reader.u32(),
      pid: reader.u32(),
    }));
  }

  /** All processes that run, and how others ended that nobody was told of yet, which is told only once */
  async list(): Promise<WardenChild[]> {
    const failure: Failure = { code: "WARDEN_FAILED", what: "Cannot list the warden's processes" };
    return this.#channel.request(OP.list, new Writer(), failure, (reader) => {
      const children = reader.list(readChild);
      const running = children.filter((child) => child.running);
      this.#listed = new Map(running.map(({ pid, startTime }) => [pid, this.#processOf(pid, startTime)]));
      return children;
    });
  }

  /** A process that was running when list() was last called, as if this client had started it */
  adopt(pid: number, startTime: string): VmmProcess {
    const process = this.#listed.get(pid);
    if (process?.startTime === startTime) return process;
    throw new ForkdError("NOT_FOUND", `Cannot adopt process ${pid}, started at ${startTime}: the warden has not listed it as running.`);
  }

  /** Leaves a warden at a socket alone, with all its processes */
  async disconnect(): Promise<void> {
    if (!this.#channel.isDurable) throw new ForkdError("BAD_REQUEST", "Cannot leave the warden alone: it ends with its client.");
    if (this.#channel.retire("it was left alone")) {
      this.#left = true;
      this.#channel.cut("it was left alone");
    }
    await this.#channel.ended;
  }

  /** Ends the warden and with it every process it started; resolves when all are gone, or nothing can be asked any more */
  async end(): Promise<void> {
    if (this.#channel.retire("it was closed")) this.#channel.askToEnd(OP.end);
    const timer = setTimeout(() => this.#kill(), CLOSE_WITHIN_MS);
    await this.#channel.ended;
    clearTimeout(timer);
  }

  async close(): Promise<void> {
    await this.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #greet(): Promise<this> {
    const timer = setTimeout(() => this.#channel.cut("it does not answer"), GREET_WITHIN_MS);
    try {
      ({ pid: this.#pid } = await this.info());
      return this;
    } finally {
      clearTimeout(timer);
    }
  }

  #kill(): void {
    // while the connection stands the pid is the warden's and no other's
    if (this.#pid !== undefined) killIfThere(this.#pid);
    this.#channel.cut("it does not end");
  }

  #processOf(pid: number, startTime: string): VmmProcess {
    const known = this.#children.get(pid);
    if (known?.process.startTime === startTime) return known.process;
    const { promise: exited, resolve } = Promise.withResolvers<Exit>();
    let gone = false;
    const settle = (exit: Exit): void => {
      gone = true;
      resolve(exit);
    };
    const kill = async (signal: NodeJS.Signals = "SIGTERM"): Promise<void> => {
      if (gone) return;
      // the warden ends all of them, unless it was left alone
      if (this.#channel.over !== undefined && !this.#left) return void (await exited);
      const payload = new Writer().u32(pid).u32(constants.signals[signal]);
      try {
        await this.#channel.request(OP.signal, payload, { code: "VMM_FAILED", what: `Cannot signal process ${pid}` }, () => undefined);
      } catch (error) {
        if (!gone && !(error instanceof ForkdError && isGone(error.cause))) throw error;
      }
    };
    const process = { pid, startTime, exited, kill };
    this.#children.set(pid, { process, settle });
    return process;
  }

  #exited(pid: number, exit: Exit): void {
    const child = this.#children.get(pid);
    this.#children.delete(pid);
    child?.settle(exit);
  }

  #forgetAll(): void {
    const children = [...this.#children.values()];
    this.#children.clear();
    // of processes that were left alone nobody here will know the end
    if (!this.#left) for (const { settle } of children) settle({ code: null, signal: "SIGKILL" });
  }
}

async function join(opts: ListenOptions, greet: (transport: Transport, adopted: boolean) => Promise<Warden>): Promise<Warden> {
  const there = await dial(opts.socket);
  if (there) return greet(there, true);
  await startListening(opts);
  const started = await dial(opts.socket);
  if (!started) throw new ForkdError("WARDEN_FAILED", `Cannot connect to the warden at ${opts.socket}: it ended at once.`);
  return greet(started, false);
}

function putConfinement(payload: Writer, confinement: Confinement | undefined): void {
  payload.u8(confinement ? 1 : 0);
  if (!confinement) return;
  for (const paths of [confinement.writable, confinement.readable, confinement.devices])
    payload.list(paths, (writer, path) => void writer.str(path));
  payload.u64(BigInt(confinement.maxFileBytes));
}

function readChild(reader: Reader): WardenChild {
  const [pid, startTime, running] = [reader.u32(), String(reader.u64()), reader.u8() === 1];
  const exit = exitOf(reader.i32(), reader.u32());
  return running ? { pid, startTime, running } : { pid, startTime, running, exit };
}

function exitOf(code: number, signal: number): Exit {
  return signal === 0 ? { code, signal: null } : { code: null, signal: signalName(signal) };
}

function isGone(cause: unknown): boolean {
  return cause instanceof WardenFault && cause.code === "ESRCH";
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
