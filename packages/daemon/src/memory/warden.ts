// Client of the warden, the small host process that is the parent of all VMMs and does the memory work of branches.

import { spawn, type ChildProcess } from "node:child_process";
import { constants } from "node:os";
import { ForkdError, messageOf, type ErrorCode } from "../errors.ts";
import { CodecError, Reader, Writer } from "../guest/codec.ts";
import { signalName } from "../util/signal-name.ts";

const OP = {
  spawn: 1,
  signal: 2,
  captureBegin: 3,
  captureFinish: 4,
  captureCommit: 5,
  captureAbort: 6,
  flatten: 7,
  info: 8,
  trim: 9,
} as const;
const REPLY = { result: 0x80, error: 0x81, exit: 0x82 } as const;
const FILE_MODE = { read: 0, "read-write": 1, create: 2, listen: 3 } as const;

const MAX_MESSAGE = 1024 * 1024;
/** op and request id */
const HEAD = 5;
/** A warden that was told to end only has to kill and reap */
const CLOSE_WITHIN_MS = 10_000;

/** A file the child finds open at `fd` (3 to 255); "listen" makes a Unix socket at the path, connectable at once */
export type ChildFile = { fd: number; path: string; mode: keyof typeof FILE_MODE };

export type SpawnSpec = {
  /** argv[0] is an absolute path */
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** stdout and stderr are appended there */
  log: string;
  files?: readonly ChildFile[];
};

export type Exit = { code: number | null; signal: string | null };

export type VmmProcess = {
  readonly pid: number;
  /** Always resolves; when the warden died, the process died with it and nobody knows how */
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

export type WardenInfo = { captureMethod: string; scanMethod: string; threads: number };

/** What the warden itself answered: `code` is an errno name or a word */
export class WardenFault extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = "WardenFault";
    this.code = code;
  }
}

type Pending = { receive: (payload: Reader) => void; reject: (error: ForkdError) => void; failure: Failure };
type Failure = { code: ErrorCode; what: string };

export class Warden implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  readonly #exits = new Map<number, (exit: Exit) => void>();
  readonly #ended: Promise<void>;
  #lastId = 0;
  #received: Buffer = Buffer.alloc(0);
  /** Why nothing can be asked any more */
  #over: string | undefined;

  static async start(opts: { binary: string }): Promise<Warden> {
    // detached: a terminal's Ctrl-C must not reach it, it lives as long as its stdin
    const child = spawn(opts.binary, [], { stdio: ["pipe", "pipe", "inherit"], detached: true, env: {} });
    const warden = new Warden(child);
    try {
      await warden.info();
    } catch (error) {
      await warden.close();
      throw error;
    }
    return warden;
  }

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#ended = new Promise((resolve) => {
      const end = (why: string): void => {
        this.#fail(why);
        resolve();
      };
      child.once("error", (error) => end(messageOf(error)));
      // "close" and not "exit": what it wrote last is read first
      child.once("close", (code, signal) => end(signal === null ? `it ended with code ${code}` : `it was killed by ${signal}`));
    });
    // a write to a warden that is gone; "close" tells everybody
    child.stdin?.on("error", () => undefined);
    child.stdout?.on("data", (chunk: Buffer) => this.#receive(chunk));
  }

  async spawn(spec: SpawnSpec, failure: ErrorCode = "VMM_FAILED"): Promise<VmmProcess> {
    const payload = new Writer()
      .list(spec.argv, (writer, arg) => void writer.str(arg))
      .list(Object.entries(spec.env), (writer, [key, value]) => void writer.str(`${key}=${value}`))
      .str(spec.cwd)
      .str(spec.log)
      .list(spec.files ?? [], (writer, file) => void writer.u32(file.fd).str(file.path).u8(FILE_MODE[file.mode]));
    const what = `Cannot start ${spec.argv[0]}`;
    return this.#request(OP.spawn, payload, { code: failure, what }, (reader) => this.#adopt(reader.u32()));
  }

  /** Copies the private pages of a running VM's RAM into a delta file that commit() completes */
  async captureBegin(spec: CaptureSpec, failure: ErrorCode = "BRANCH_FAILED"): Promise<Capture> {
    const payload = new Writer().u32(spec.pid).str(spec.ramPath).u64(BigInt(spec.ramBytes)).str(spec.deltaPath);
    const failed = { code: failure, what: `Cannot capture the memory of process ${spec.pid}` };
    const begun = await this.#request(OP.captureBegin, payload, failed, (reader) => ({
      id: reader.u64(),
      pages: Number(reader.u64()),
      micros: Number(reader.u64()),
    }));
    const step = <T>(op: number, parse: (reader: Reader) => T): Promise<T> => this.#request(op, new Writer().u64(begun.id), failed, parse);
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
    return this.#request(OP.flatten, payload, { code: failure, what: `Cannot write the memory image ${spec.out}` }, (reader) => ({
      bytes: Number(reader.u64()),
      reflinked: reader.u8() === 1,
      micros: Number(reader.u64()),
    }));
  }

  /** Gives back the disk space of the zero pages of a file */
  async trim(path: string, failure: ErrorCode = "BRANCH_FAILED"): Promise<{ freed: number; micros: number }> {
    return this.#request(OP.trim, new Writer().str(path), { code: failure, what: `Cannot trim ${path}` }, (reader) => ({
      freed: Number(reader.u64()),
      micros: Number(reader.u64()),
    }));
  }

  async info(): Promise<WardenInfo> {
    const failure: Failure = { code: "WARDEN_FAILED", what: "Cannot ask the warden" };
    return this.#request(OP.info, new Writer(), failure, (reader) => ({
      captureMethod: reader.str(),
      scanMethod: reader.str(),
      threads: reader.u32(),
    }));
  }

  /** Ends the warden and with it every process it started; resolves when all are gone */
  async close(): Promise<void> {
    this.#over ??= "it was closed";
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), CLOSE_WITHIN_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #request<T>(op: number, payload: Writer, failure: Failure, parse: (reader: Reader) => T): Promise<T> {
    if (this.#over !== undefined) throw wardenFailed(failure.what, this.#over);
    const body = payload.done();
    if (body.length + HEAD > MAX_MESSAGE) throw new ForkdError(failure.code, `${failure.what}: the request has ${body.length} bytes.`);
    this.#lastId = (this.#lastId + 1) >>> 0;
    const id = this.#lastId;
    const head = Buffer.allocUnsafe(4 + HEAD);
    head.writeUInt32LE(HEAD + body.length, 0);
    head.writeUInt8(op, 4);
    head.writeUInt32LE(id, 5);
    return new Promise<T>((resolve, reject) => {
      // parsed when it is received, not later: an exit that follows at once must find its process known
      this.#pending.set(id, { receive: (reader) => resolve(parse(reader)), reject, failure });
      this.#child.stdin?.write(Buffer.concat([head, body]));
    });
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    while (this.#received.length >= 4) {
      const length = this.#received.readUInt32LE(0);
      if (length < HEAD || length > MAX_MESSAGE) return this.#confused(`a message of ${length} bytes`);
      if (this.#received.length < 4 + length) return;
      const body = this.#received.subarray(4, 4 + length);
      this.#received = this.#received.subarray(4 + length);
      try {
        this.#handle(body.readUInt8(0), body.readUInt32LE(1), new Reader(body.subarray(HEAD)));
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        return this.#confused(error.message);
      }
    }
  }

  #handle(op: number, id: number, payload: Reader): void {
    if (op === REPLY.exit) return this.#exited(payload.u32(), payload.i32(), payload.u32());
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (op === REPLY.error) pending.reject(failed(pending.failure, payload.str(), payload.str()));
    else pending.receive(payload);
    this.#pending.delete(id);
  }

  #adopt(pid: number): VmmProcess {
    let gone = false;
    const exited = new Promise<Exit>((resolve) => {
      this.#exits.set(pid, (exit) => {
        gone = true;
        resolve(exit);
      });
    });
    const kill = async (signal: NodeJS.Signals = "SIGTERM"): Promise<void> => {
      if (gone) return;
      if (this.#over !== undefined) return void (await exited); // the warden ends all of them
      const payload = new Writer().u32(pid).u32(constants.signals[signal]);
      try {
        await this.#request(OP.signal, payload, { code: "VMM_FAILED", what: `Cannot signal process ${pid}` }, () => undefined);
      } catch (error) {
        if (!gone && !(error instanceof ForkdError && isGone(error.cause))) throw error;
      }
    };
    return { pid, exited, kill };
  }

  #exited(pid: number, code: number, signal: number): void {
    const resolve = this.#exits.get(pid);
    this.#exits.delete(pid);
    resolve?.(signal === 0 ? { code, signal: null } : { code: null, signal: signalName(signal) });
  }

  #confused(why: string): void {
    this.#fail(`it sent ${why}`);
    this.#child.kill("SIGKILL");
  }

  #fail(why: string): void {
    this.#over ??= why;
    const reason = this.#over;
    const exits = [...this.#exits.values()];
    this.#exits.clear();
    for (const resolve of exits) resolve({ code: null, signal: "SIGKILL" });
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject, failure } of pending) reject(wardenFailed(failure.what, reason));
  }
}

function isGone(cause: unknown): boolean {
  return cause instanceof WardenFault && cause.code === "ESRCH";
}

function wardenFailed(what: string, why: string): ForkdError {
  return new ForkdError("WARDEN_FAILED", `${what}: the warden is gone, ${why}.`);
}

function failed(failure: Failure, code: string, message: string): ForkdError {
  return new ForkdError(publicCode(failure.code, code), `${failure.what}: ${message}.`, { cause: new WardenFault(code, message) });
}

function publicCode(failure: ErrorCode, code: string): ErrorCode {
  if (code === "ENOSPC" || code === "EDQUOT") return "NO_SPACE";
  return code === "bad_delta" ? "SNAPSHOT_INVALID" : failure;
}
