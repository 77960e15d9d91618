// Client of the warden, the small host process that is the parent of all VMMs and does the memory work of branches.

import { constants } from "node:os";
import path from "node:path";
import { ForkdError, type ErrorCode } from "../errors.ts";
import { Writer, type Reader } from "../util/codec.ts";
import { signalName } from "../util/signal-name.ts";
import { WardenChannel, WardenFault, type Failure } from "./channel.ts";
import { dial, startAtPipes, startListening, type ListenOptions, type Transport } from "./transport.ts";

const OP = {
  signal: 2,
  captureFinish: 4,
  captureCommit: 5,
  captureAbort: 6,
  flatten: 7,
  info: 8,
  trim: 9,
  list: 10,
  end: 11,
  spawn: 16,
  hold: 17,
  clone: 18,
  give: 19,
  seal: 20,
  prepare: 21,
  fork: 22,
  capture: 23,
  captureBegin: 24,
  prepareFrozen: 25,
  freeze: 26,
} as const;
/** What is to be made of a process later */
const COPIES = { none: 0, clones: 1, frozen: 2 } as const;
const FILTER = { deny: 0, listed: 1 } as const;
const FILE_MODE = { read: 0, "read-write": 1, create: 2, listen: 3, copy: 4 } as const;

/** Time for a warden to end: it kills and reaps its processes */
const CLOSE_WITHIN_MS = 10_000;
/** Time for the first reply. A warden is never busy for long, but it may be stopped by a signal */
const GREET_WITHIN_MS = 10_000;
const CONNECT_ATTEMPTS = 3;

/**
 * A file that the child inherits at `fd` (3 to 255); "listen" creates a Unix socket at the path, which accepts
 * connections at once; "copy", only for a clone, creates a file with the content of the one that the held process has
 */
export type ChildFile = { fd: number; path: string; mode: keyof typeof FILE_MODE };

/**
 * The host's files in the namespaces of a confined process; paths are absolute and, except in `placed`, the same inside
 */
export type Confinement = {
  /** folders and files */
  writable: readonly string[];
  /** folders and files, besides the system's programs and libraries */
  readable: readonly string[];
  /** files that appear at other paths, read-only */
  placed?: readonly { path: string; at: string }[];
  /** device files, besides null, zero and urandom */
  devices: readonly string[];
  /** maximum size of a file that it writes */
  maxFileBytes: number;
  /**
   * "deny" (the default): refuses calls that are useful to an attacker; otherwise a call that is not in the program's
   * allow list ends it
   */
  filter?: keyof typeof FILTER | undefined;
};

export type SpawnSpec = {
  /** argv[0] is an absolute path */
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** stdout and stderr are appended to this file */
  log: string;
  files?: readonly ChildFile[];
  /** folder of its control group */
  group?: string | undefined;
  /** without it, the process is unconfined */
  confinement?: Confinement | undefined;
  /** "clones" allows hold(), clone() and fork(), "frozen" allows freeze(); both require confinement */
  copies?: keyof typeof COPIES | undefined;
};

/** A copy of a process. Its files replace those of the original at the same descriptors */
export type CloneSpec = Pick<SpawnSpec, "log" | "files" | "group">;

/**
 * A copy of a process that runs. In the copy, connections to its listeners at the descriptors `silent` stay open, but nothing
 * comes and nothing can be sent; its other connections are closed
 */
export type ForkSpec = CloneSpec & {
  silent: readonly number[];
  /** file that the process will have begun to write for `fd`; its copy can only read the one that it writes now */
  next?: { fd: number; path: string } | undefined;
};

export type Exit = { code: number | null; signal: string | null };

export type VmmProcess = {
  readonly pid: number;
  /** In clock ticks since boot, as in /proc; with the pid, identifies a process until the next boot */
  readonly startTime: string;
  /** If the warden dies its processes die too, with an unknown status. Never resolves after disconnect() */
  readonly exited: Promise<Exit>;
  /** Resolves when the signal is sent or the process has already ended */
  kill(signal?: NodeJS.Signals): Promise<void>;
};

export type CaptureSpec = {
  pid: number;
  ramPath: string;
  ramBytes: number;
  deltaPath: string;
  /** deltas between the RAM file and the memory with which the process began, oldest first; their pages are not counted */
  below?: readonly string[];
  /** deltas of earlier captures of the process, oldest first; the new delta has only pages that differ from all of these */
  earlier?: readonly string[];
};

/** A process whose RAM does not change. `alike`: held process whose RAM is the content of `below` and `earlier` */
export type WholeCaptureSpec = CaptureSpec & { alike?: number | undefined };

export type Capture = {
  /** Number of private pages at the first copy */
  readonly pages: number;
  readonly micros: number;
  /** Copies changed pages again; call it while the VM is stopped */
  finish(): Promise<{ pages: number; recopied: number; micros: number }>;
  /** Completes the delta file; call it when the VM runs again */
  commit(): Promise<{ bytes: number; pages: number }>;
  /** Removes the delta file unless it was committed; never rejects */
  abort(): Promise<void>;
};

export type WardenInfo = { captureMethod: string; scanMethod: string; threads: number; pid: number };

/** A process of the warden, started by this client or an earlier one; `exit` is set if it has ended */
export type WardenChild = { pid: number; startTime: string; running: boolean; exit?: Exit };

type Child = { process: VmmProcess; settle: (exit: Exit) => void };

export class Warden implements AsyncDisposable {
  readonly #channel: WardenChannel;
  /** Running processes */
  readonly #children = new Map<number, Child>();
  /** Processes that ran at the last list(), including those that have ended since */
  #listed = new Map<number, VmmProcess>();
  #pid: number | undefined;
  #left = false;
  /** The warden was already running, maybe with processes of an earlier client */
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

  /**
   * Connects to the warden at a socket and disconnects its previous client. Starts a warden that outlives this process
   * if none runs
   */
  static async connect(opts: ListenOptions): Promise<Warden> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await join(opts, async (transport, adopted) => new Warden(transport, adopted).#greet());
      } catch (error) {
        // The warden may have been ending, or another process started one first: try again.
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

  /** Resolves with the reason when the warden, or the connection to it, has ended unexpectedly */
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
    payload.u8(COPIES[spec.copies ?? "none"]);
    const what = `Cannot start ${spec.argv[0]}`;
    return this.#channel.request(OP.spawn, payload, { code: failure, what }, (reader) =>
      this.#processOf(reader.u32(), String(reader.u64())),
    );
  }

  /**
   * Stops a process permanently, so that it can be cloned. Fails with EAGAIN while one of its threads is busy; the
   * process then continues
   */
  async hold(pid: number, failure: ErrorCode = "VMM_FAILED"): Promise<void> {
    const what = `Cannot hold process ${pid}`;
    await this.#channel.request(OP.hold, new Writer().u32(pid), { code: failure, what }, () => undefined);
  }

  async clone(pid: number, spec: CloneSpec, failure: ErrorCode = "VMM_FAILED"): Promise<VmmProcess> {
    return this.#copy(OP.clone, pid, copyRequest(pid, spec), failure);
  }

  /** Readies a running clonable process for fork(), which makes the copy; takes the longer the more memory it has */
  async prepare(pid: number, spec: ForkSpec, failure: ErrorCode = "VMM_FAILED"): Promise<void> {
    const failed = { code: failure, what: `Cannot prepare process ${pid} for a fork` };
    const { silent, next } = spec;
    const payload = copyRequest(pid, spec)
      .list(silent, (writer, fd) => void writer.u32(fd))
      .u8(next === undefined ? 0 : 1);
    if (next) payload.u32(next.fd).str(next.path);
    await this.#channel.request(OP.prepare, payload, failed, () => undefined);
  }

  /** Copies a prepared process, which continues at once. If this client disconnects, the copy is ended */
  async fork(pid: number, failure: ErrorCode = "VMM_FAILED"): Promise<VmmProcess> {
    return this.#copy(OP.fork, pid, new Writer().u32(pid), failure);
  }

  async #copy(op: number, pid: number, payload: Writer, failure: ErrorCode): Promise<VmmProcess> {
    const what = `Cannot clone process ${pid}`;
    return this.#channel.request(op, payload, { code: failure, what }, (reader) => this.#processOf(reader.u32(), String(reader.u64())));
  }

  /** Readies a running process that was started for frozen copies for freeze() */
  async prepareFrozen(pid: number, ram: { path: string; bytes: number }, failure: ErrorCode = "VMM_FAILED"): Promise<void> {
    const payload = new Writer().u32(pid).str(ram.path).u64(BigInt(ram.bytes));
    const failed = { code: failure, what: `Cannot prepare process ${pid} for a frozen copy` };
    await this.#channel.request(OP.prepareFrozen, payload, failed, () => undefined);
  }

  /**
   * Makes a process that has the RAM of a prepared one as it is now, and nothing else; the prepared one continues at once.
   * If this client disconnects, the copy is ended
   */
  async freeze(pid: number, failure: ErrorCode = "VMM_FAILED"): Promise<VmmProcess> {
    return this.#copy(OP.freeze, pid, new Writer().u32(pid), failure);
  }

  /** Replaces the file that a running clonable process was given at `fd`; its main thread stops for a moment */
  async give(pid: number, { fd, path, mode }: ChildFile, failure: ErrorCode = "VMM_FAILED"): Promise<void> {
    const payload = new Writer().u32(pid).u32(fd).str(path).u8(FILE_MODE[mode]);
    await this.#channel.request(OP.give, payload, { code: failure, what: `Cannot pass ${path} to process ${pid}` }, () => undefined);
  }

  /**
   * A clonable process writes the file `next` in place of the one it was given at `fd`, which it can only read from now
   * on
   */
  async seal(pid: number, fd: number, next: string, failure: ErrorCode = "VMM_FAILED"): Promise<void> {
    const payload = new Writer().u32(pid).u32(fd).str(next);
    await this.#channel.request(OP.seal, payload, { code: failure, what: `Cannot seal file ${fd} of process ${pid}` }, () => undefined);
  }

  /** Copies the private pages of a running VM's RAM into a delta file that commit() completes */
  async captureBegin(spec: CaptureSpec, failure: ErrorCode = "BRANCH_FAILED"): Promise<Capture> {
    const failed = captureFailure(spec, failure);
    const begun = await this.#channel.request(OP.captureBegin, captureRequest(spec), failed, (reader) => ({
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
      // fails only if there is nothing to abort
      abort: () => step(OP.captureAbort, () => undefined).catch(() => undefined),
    };
  }

  /** Writes the private pages of a VM's RAM that does not change meanwhile to a delta file */
  async capture(
    spec: WholeCaptureSpec,
    failure: ErrorCode = "BRANCH_FAILED",
  ): Promise<{ bytes: number; pages: number; privatePages: number }> {
    const { alike } = spec;
    const payload = captureRequest(spec).u8(alike === undefined ? 0 : 1);
    if (alike !== undefined) payload.u32(alike);
    return this.#channel.request(OP.capture, payload, captureFailure(spec, failure), (reader) => ({
      bytes: Number(reader.u64()),
      pages: Number(reader.u64()),
      privatePages: Number(reader.u64()),
    }));
  }

  /** Writes the base with the deltas applied, oldest first, to `out`, which must not exist */
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

  /** Frees the disk space of a file's zero pages */
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

  /** All running processes, and unreported exits; each exit is reported once */
  async list(): Promise<WardenChild[]> {
    const failure: Failure = { code: "WARDEN_FAILED", what: "Cannot list the warden's processes" };
    return this.#channel.request(OP.list, new Writer(), failure, (reader) => {
      const children = reader.list(readChild);
      const running = children.filter((child) => child.running);
      this.#listed = new Map(running.map(({ pid, startTime }) => [pid, this.#processOf(pid, startTime)]));
      return children;
    });
  }

  /** A process of the last list(), as if this client had started it */
  adopt(pid: number, startTime: string): VmmProcess {
    const process = this.#listed.get(pid);
    if (process?.startTime === startTime) return process;
    throw new ForkdError("NOT_FOUND", `Cannot adopt process ${pid}, started at ${startTime}: the warden has not listed it as running.`);
  }

  /** Disconnects from a warden at a socket, which keeps its processes */
  async disconnect(): Promise<void> {
    if (!this.#channel.isDurable) throw new ForkdError("BAD_REQUEST", "Cannot leave the warden alone: it ends with its client.");
    if (this.#channel.retire("it was left alone")) {
      this.#left = true;
      this.#channel.cut("it was left alone");
    }
    await this.#channel.ended;
  }

  /** Ends the warden and every process it started; resolves when all have ended or the channel is closed */
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
    // the pid cannot have been reused while the connection is open
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
      // the warden ends all its processes, unless it was disconnected
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
    // exits of detached processes are not reported here
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

function copyRequest(pid: number, spec: CloneSpec): Writer {
  const payload = new Writer()
    .u32(pid)
    .str(spec.log)
    .list(spec.files ?? [], (writer, file) => void writer.u32(file.fd).str(file.path).u8(FILE_MODE[file.mode]))
    .u8(spec.group === undefined ? 0 : 1);
  if (spec.group !== undefined) payload.str(spec.group);
  return payload;
}

function captureFailure({ pid }: CaptureSpec, code: ErrorCode): Failure {
  return { code, what: `Cannot capture the memory of process ${pid}` };
}

function captureRequest({ pid, ramPath, ramBytes, deltaPath, below = [], earlier = [] }: CaptureSpec): Writer {
  return new Writer()
    .u32(pid)
    .str(ramPath)
    .u64(BigInt(ramBytes))
    .str(deltaPath)
    .list([...below, ...earlier], (writer, path) => void writer.str(path))
    .u32(below.length);
}

function putConfinement(payload: Writer, confinement: Confinement | undefined): void {
  payload.u8(confinement ? 1 : 0);
  if (!confinement) return;
  const paths = (list: readonly string[]): void => void payload.list(list, (writer, path) => void writer.str(path));
  paths(confinement.writable);
  paths(confinement.readable);
  payload.list(confinement.placed ?? [], (writer, { path, at }) => void writer.str(path).str(at));
  paths(confinement.devices);
  payload.u64(BigInt(confinement.maxFileBytes)).u8(FILTER[confinement.filter ?? "deny"]);
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
