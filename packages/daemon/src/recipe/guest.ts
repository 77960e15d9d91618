// Operations of a build inside its sandbox.

import { request } from "node:http";
import { text } from "node:stream/consumers";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import type { Language } from "@forkd/runtime/agent/kernel/language";
import type { Caller } from "../service/caller.ts";
import type { Manager } from "../service/manager.ts";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** Limit per output stream of a step */
const MAX_OUTPUT = 1024 * 1024;
/** Limit of the response body of a check */
const MAX_BODY = 64 * 1024;

type Place = { user?: string | undefined; cwd?: string | undefined; env?: Record<string, string> | undefined };
type Output = { stdout: string; stderr: string; exit_code: number };

export type Guest = {
  /** sandbox id */
  id: string;
  exec: (
    args: readonly string[],
    opts: Place & { stdin?: string | undefined; timeoutSecs: number },
  ) => Promise<Output & { timed_out: boolean }>;
  eval: (
    code: string,
    opts: { language?: Language | undefined; timeoutSecs: number },
  ) => Promise<Output & { error: string | null; traceback: string | null; result: string | null; value?: unknown }>;
  start: (args: readonly string[], opts: Place & { tag?: string | undefined }) => Promise<void>;
  write: (path: string, content: AsyncIterable<Uint8Array>, opts: { mode?: string | undefined }) => Promise<void>;
  unpack: (path: string, archive: AsyncIterable<Uint8Array>) => Promise<void>;
  chown: (path: string, opts: { owner?: string | undefined; group?: string | undefined; recursive: boolean }) => Promise<void>;
  /** Listening ports */
  ports: () => Promise<number[]>;
  get: (port: number, path: string, opts: { timeoutSecs: number }) => Promise<{ status: number; body: string }>;
  /** A started process: its buffered output, and its exit code if it has ended */
  process: (tag: string) => Promise<{ output: { stdout: string; stderr: string }; exitCode: number | null }>;
  signal: AbortSignal;
};

export type GuestServices = {
  execution: Pick<Manager["execution"], "exec" | "eval">;
  processes: Pick<Manager["processes"], "start" | "watch" | "get">;
  files: Pick<Manager["files"], "unpack" | "chown"> & { write: (...given: Parameters<Manager["files"]["write"]>) => Promise<unknown> };
  ports: Pick<Manager["ports"], "list"> & { open: (id: string, caller: Caller) => Promise<OpenPorts> };
};

/** Port connections of a sandbox, with a lease that is held until close() */
type OpenPorts = {
  connect: (port: number, signal?: AbortSignal) => Promise<Duplex>;
  explain: (error: unknown) => unknown;
  close: () => void;
};

/** Guest interface to a sandbox of this daemon */
export function guestOf(services: GuestServices, id: string, caller: Caller): Guest {
  const { execution, processes, files, ports } = services;
  return {
    id,
    signal: caller.signal,
    exec: async (args, { timeoutSecs, ...opts }) =>
      execution.exec(id, { ...opts, args: [...args], timeout_secs: timeoutSecs, encoding: "utf8", max_output_bytes: MAX_OUTPUT }, caller),
    eval: async (code, { language, timeoutSecs }) => execution.eval(id, { code, language, timeout_secs: timeoutSecs }, caller),
    start: async (args, opts) => void (await processes.start(id, { ...opts, args: [...args], stdin: false }, caller)),
    write: async (path, content, { mode }) => void (await files.write(id, { path, mode, parents: true }, content, caller)),
    unpack: async (path, archive) => void (await files.unpack(id, { path }, archive, caller)),
    chown: async (path, opts) => files.chown(id, { path, ...opts }, caller),
    ports: async () => (await ports.list(id, caller)).map(({ port }) => port),
    get: async (port, path, { timeoutSecs }) => {
      const late = AbortSignal.timeout(Math.ceil(timeoutSecs * 1000));
      const open = await ports.open(id, caller);
      try {
        const socket = await open.connect(port, AbortSignal.any([caller.signal, late]));
        return await fetchOver(socket, port, path, AbortSignal.any([caller.signal, late]));
      } catch (error) {
        if (caller.signal.aborted) throw error;
        if (late.aborted) throw new ForkdError("GATEWAY_TIMEOUT", "it does not answer", { cause: error });
        throw open.explain(error instanceof ForkdError ? error : new ForkdError("BAD_GATEWAY", messageOf(error), { cause: error }));
      } finally {
        open.close();
      }
    },
    process: async (tag) => {
      const { state, exit_code: exitCode } = await processes.get(id, tag, caller);
      const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
      const output = { stdout: "", stderr: "" };
      for await (const event of await processes.watch(id, tag, { follow: false }, caller))
        if (event.type === "data") output[event.channel] += decoders[event.channel].decode(event.bytes, { stream: true });
      return { output, exitCode: state === "ended" ? exitCode : null };
    },
  };
}

/** One GET to a server in the guest; closes the connection afterwards */
async function fetchOver(socket: Duplex, port: number, path: string, signal: AbortSignal): Promise<{ status: number; body: string }> {
  const answer = Promise.withResolvers<IncomingMessage>();
  const headers = { host: `127.0.0.1:${port}`, connection: "close" };
  const sent = request({ createConnection: () => socket, path, headers, signal });
  sent.once("response", answer.resolve).on("error", answer.reject);
  sent.end();
  try {
    const response = await answer.promise;
    return { status: response.statusCode ?? 0, body: await text(bounded(response)) };
  } finally {
    sent.destroy();
    socket.destroy();
  }
}

async function* bounded(response: IncomingMessage): AsyncGenerator<Buffer> {
  let left = MAX_BODY;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    yield chunk.subarray(0, left);
    left -= chunk.length;
    if (left <= 0) return;
  }
}
