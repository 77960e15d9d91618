// Transports to a warden: the pipes of one that ends with this process, or the socket of one that outlives it.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { open } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { ForkdError, messageOf } from "../errors.ts";

/** Time for a warden to bind its socket and detect the kernel's features */
const READY_WITHIN_MS = 10_000;
const MAX_SHOWN_COMPLAINT = 4096;

export type TransportEvents = { data: (chunk: Buffer) => void; end: (why: string) => void };

export type Transport = {
  /** Call exactly once, right after construction; `end` is called once, after all data */
  listen(events: TransportEvents): void;
  write(bytes: Buffer): void;
  /** Kills a warden at pipes; only disconnects from one at a socket */
  destroy(): void;
  /** Pipes only: the warden ends when its input ends */
  readonly endInput?: () => void;
};

export type ListenOptions = {
  binary: string;
  /** absolute path; the folder must exist */
  socket: string;
  /** the warden appends its error messages to this file */
  log: string;
};

/** Starts a warden at pipes */
export function startAtPipes(binary: string): Transport {
  // detached: the warden lives as long as its stdin, and a terminal's Ctrl-C must not end it
  const child = spawn(binary, [], { stdio: ["pipe", "pipe", "inherit"], detached: true, env: {} });
  // EPIPE of a write to a warden that has ended; "close" reports the end
  child.stdin?.on("error", () => undefined);
  return {
    listen: ({ data, end }) => {
      child.stdout?.on("data", data);
      void endOf(child).then(end);
    },
    write: (bytes) => void child.stdin?.write(bytes),
    destroy: () => void child.kill("SIGKILL"),
    endInput: () => void child.stdin?.end(),
  };
}

/** Connects to a listening warden; undefined if none listens */
export async function dial(path: string): Promise<Transport | undefined> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ECONNREFUSED") return undefined;
    throw new ForkdError("WARDEN_FAILED", `Cannot connect to the warden at ${path}: ${messageOf(error)}.`, { cause: error });
  }
  return overSocket(socket);
}

/** Starts a warden that outlives this process; resolves when it accepts connections */
export async function startListening(opts: ListenOptions): Promise<void> {
  const what = `Cannot start the warden ${opts.binary}`;
  await using log = await open(opts.log, "a", 0o600).catch((error: unknown) => {
    throw new ForkdError("WARDEN_FAILED", `${what}: ${messageOf(error)}.`, { cause: error });
  });
  const { size } = await log.stat();
  const child = spawn(opts.binary, ["--listen", opts.socket], { stdio: ["ignore", "pipe", log.fd], detached: true, env: {} });
  const why = await failureToListen(child);
  // open handles of the child would keep this process alive
  child.stdout?.destroy();
  child.unref();
  if (why === undefined) return;
  const complaint = await readFrom(opts.log, size);
  throw new ForkdError("WARDEN_FAILED", `${what}: ${why}${complaint === "" ? "" : `: ${complaint}`}.`);
}

function overSocket(socket: Socket): Transport {
  return {
    listen: ({ data, end }) => {
      let why = "the connection was closed";
      socket.on("data", data);
      socket.on("error", (error) => (why = messageOf(error)));
      socket.once("close", () => end(why));
    },
    write: (bytes) => void socket.write(bytes),
    destroy: () => void socket.destroy(),
  };
}

/** Resolves with undefined when the warden reports that it is ready, else with the reason */
async function failureToListen(child: ChildProcess): Promise<string | undefined> {
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill("SIGKILL");
  }, READY_WITHIN_MS);
  const ready = new Promise<undefined>((resolve) => {
    let said = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      said += chunk.toString("latin1");
      if (said.startsWith("ready\n")) resolve(undefined);
    });
  });
  const why = await Promise.race([ready, endOf(child)]);
  clearTimeout(timer);
  return late ? `it was not ready within ${READY_WITHIN_MS} ms` : why;
}

async function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(messageOf(error)));
    // "close" instead of "exit": the last output is read first
    child.once("close", (code, signal) => resolve(signal === null ? `it ended with code ${code}` : `it was killed by ${signal}`));
  });
}

async function readFrom(path: string, position: number): Promise<string> {
  await using file = await open(path, "r");
  const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(MAX_SHOWN_COMPLAINT), position });
  return buffer.toString("utf8", 0, bytesRead).trim();
}
