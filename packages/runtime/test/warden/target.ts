// Fixtures of the memory tests: a warden with a folder, RAM files, and processes that map them.

import { execFileSync } from "node:child_process";
import { closeSync, existsSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Warden, type SpawnSpec, type VmmProcess } from "../../src/warden/warden.ts";

export const PAGE = 4096;
export const MIB = 1024 * 1024;

const root = join(import.meta.dirname, "../../../..");
const built = [join(root, "target/release/forkd-warden"), join(root, "dist/bin/forkd-warden")];
export const wardenBinary = process.env["FORKD_TEST_WARDEN"] ?? built.find((path) => existsSync(path)) ?? built[0]!;

const python = execFileSync("python3", ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" }).trim();

/** A warden and a folder, both removed at disposal */
export class Scratch implements AsyncDisposable {
  warden: Warden;
  readonly dir: string;
  #count = 0;

  static async make(parent = tmpdir()): Promise<Scratch> {
    return new Scratch(await Warden.start({ binary: wardenBinary }), mkdtempSync(join(parent, "forkd-memory-")));
  }

  /** With a warden that outlives its clients */
  static async listening(): Promise<Scratch> {
    const dir = mkdtempSync(join(tmpdir(), "forkd-memory-"));
    return new Scratch(await Warden.connect(listenOptions(dir)), dir);
  }

  private constructor(warden: Warden, dir: string) {
    this.warden = warden;
    this.dir = dir;
  }

  path(name: string): string {
    return join(this.dir, `${name}-${++this.#count}`);
  }

  /** Connects a new client to the listening warden, which replaces the previous one */
  async connect(): Promise<Warden> {
    this.warden = await Warden.connect(listenOptions(this.dir));
    return this.warden;
  }

  async remove(): Promise<void> {
    await this.warden.close();
    // all clients may have disconnected without ending it
    const options = listenOptions(this.dir);
    if (existsSync(options.socket)) await (await Warden.connect(options)).end();
    rmSync(this.dir, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove();
  }
}

/** Options of the warden that listens in a folder */
export function listenOptions(dir: string): { binary: string; socket: string; log: string } {
  return { binary: wardenBinary, socket: join(dir, "warden.sock"), log: join(dir, "warden.log") };
}

/** A shell script as a child */
export function shell(scratch: Scratch, script: string, more: Partial<SpawnSpec> = {}): SpawnSpec {
  return { argv: ["/bin/sh", "-c", script], env: {}, cwd: scratch.dir, log: scratch.path("log"), ...more };
}

/** Whether the process exists and is no zombie */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Whether `promise` is still pending after all queued work has run */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let isSettled = false;
  const settle = (): void => void (isSettled = true);
  promise.then(settle, settle);
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  return !isSettled;
}

/** A sparse file that begins with `dataBytes` of noise */
export function makeBase(scratch: Scratch, bytes: number, dataBytes: number): string {
  const path = scratch.path("ram");
  const file = openSync(path, "wx", 0o600);
  ftruncateSync(file, bytes);
  const noise = new Random(bytes).bytes(MIB);
  for (let at = 0; at < dataBytes; at += MIB) writeSync(file, noise, 0, Math.min(MIB, dataBytes - at), at);
  closeSync(file);
  return path;
}

export type Target = { process: VmmProcess; base: string; tell: (command: string) => Promise<void> };

export async function startTarget(scratch: Scratch, base: string, bytes: number): Promise<Target> {
  const socketPath = scratch.path("socket");
  const child = await scratch.warden.spawn({
    argv: [python, join(import.meta.dirname, "target.py"), base, String(bytes)],
    env: {},
    cwd: scratch.dir,
    log: join(scratch.dir, "target.log"),
    files: [{ fd: 3, path: socketPath, mode: "listen" }],
  });
  const socket = connect(socketPath);
  socket.on("error", () => undefined);
  const answers = createInterface({ input: socket })[Symbol.asyncIterator]();
  const tell = async (command: string): Promise<void> => {
    socket.write(`${command}\n`);
    const answer = await answers.next();
    if (answer.done === true || answer.value !== "ok") throw new Error(`target did not answer "${command}"`);
  };
  void child.exited.then(() => socket.destroy());
  // The socket accepts connections before the process has mapped its memory.
  await tell("read 0 0");
  return { process: child, base, tell };
}

/** xorshift32: the same sequence in every run */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed ^ 0x9e3779b9) | 1;
  }

  below(limit: number): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) % limit;
  }

  bytes(length: number): Buffer {
    const buffer = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; at++) buffer[at] = this.below(255) + 1;
    return buffer;
  }
}
