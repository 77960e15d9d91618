// What is done inside a running sandbox.

import type {
  EvalRequest,
  EvalResult,
  ExecRequest,
  ExecResult,
  FileInfo,
  PingResult,
  ReadFileQuery,
  WriteFileQuery,
  WriteResult,
} from "../api/exec.ts";
import type { LogsQuery } from "../api/sandbox.ts";
import type { Caller } from "./caller.ts";
import type { Meter } from "./core.ts";
import { exitCodeOf } from "./exit-code.ts";
import { ConsoleLogs, logLines } from "./logs.ts";
import type { Registry } from "./registry.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";

export class Inside {
  readonly #sandboxes: Sandboxes;
  readonly #registry: Registry;
  readonly #meter: Meter;
  readonly #consoles = new ConsoleLogs();

  constructor(parts: { sandboxes: Sandboxes; registry: Registry; meter: Meter }) {
    this.#sandboxes = parts.sandboxes;
    this.#registry = parts.registry;
    this.#meter = parts.meter;
  }

  async ping(id: string): Promise<PingResult> {
    return this.#sandboxes.use(id, async (sandbox) => {
      const from = performance.now();
      await sandbox.ping();
      return { pong: true, ms: performance.now() - from, kernels: sandbox.kernels };
    });
  }

  async exec(id: string, request: ExecRequest, caller: Caller): Promise<ExecResult> {
    const { args, stdin, env, cwd, user, encoding } = request;
    return this.#sandboxes.use(id, async (sandbox) =>
      this.#measured(this.#meter.executed, async () => {
        const result = await sandbox.exec(args, {
          timeoutMs: request.timeout_secs * 1000,
          maxOutputBytes: request.max_output_bytes,
          env,
          cwd,
          user,
          signal: caller.signal,
          ...(stdin === undefined ? {} : { stdin: Buffer.from(stdin, encoding) }),
        });
        return {
          stdout: result.stdout.toString(encoding),
          stderr: result.stderr.toString(encoding),
          exit_code: exitCodeOf(result),
          signal: result.signal,
          timed_out: result.timedOut,
          truncated: result.truncated,
        };
      }),
    );
  }

  async eval(id: string, request: EvalRequest, caller: Caller): Promise<EvalResult> {
    return this.#sandboxes.use(id, async (sandbox) =>
      this.#measured(this.#meter.evaluated, async () => {
        const { language, code } = request;
        const timeoutMs = request.timeout_secs * 1000;
        const result = await sandbox.eval(code, { timeoutMs, signal: caller.signal, ...(language ? { language } : {}) });
        const { error } = result;
        return {
          result: result.text,
          ...(result.json === undefined ? {} : { value: result.json }),
          error: error && `${error.type}: ${error.message}`,
          error_type: error && error.type,
          traceback: error && error.traceback,
          exit_code: error ? 1 : 0,
          stdout: result.stdout,
          stderr: result.stderr,
          truncated: result.truncated,
        };
      }),
    );
  }

  /** Rejects before the first byte when the file cannot be read */
  async readFile(id: string, query: ReadFileQuery, caller: Caller): Promise<AsyncIterable<Buffer>> {
    const { path, offset, length } = query;
    const range = { ...(offset === undefined ? {} : { offset }), ...(length === undefined ? {} : { length }) };
    const chunks = await this.#sandboxes.use(id, async (sandbox) => {
      const reading = sandbox.readFileChunks(path, range);
      return { reading, first: await reading.next() };
    });
    return this.#rest(id, chunks, caller);
  }

  async writeFile(id: string, query: WriteFileQuery, content: AsyncIterable<Uint8Array>, caller: Caller): Promise<WriteResult> {
    const { path, mode, append, parents } = query;
    const bytes = await this.#sandboxes.use(id, async (sandbox) =>
      sandbox.writeFile(path, content, {
        append: append ?? false,
        parents: parents ?? false,
        signal: caller.signal,
        ...(mode === undefined ? {} : { mode: Number.parseInt(mode, 8) }),
      }),
    );
    return { bytes };
  }

  async statFile(id: string, path: string): Promise<FileInfo> {
    return this.#sandboxes.use(id, async (sandbox) => {
      const { kind, mode, uid, gid, size, mtimeMs } = await sandbox.stat(path);
      return { kind, mode: (mode & 0o7777).toString(8).padStart(4, "0"), uid, gid, size, mtime_ms: mtimeMs };
    });
  }

  logs(id: string, query: LogsQuery, signal: AbortSignal): AsyncIterable<string> {
    const entry = this.#registry.get(id);
    // here and not at the first line: one that has ended is a 410, not an empty log
    const sandbox = liveOf(entry);
    return logLines(this.#consoles, sandbox, query, signal);
  }

  /** No generator: one that nobody has begun to read runs no `finally`, and the agent's stream would stay open */
  #rest(
    id: string,
    { reading, first }: { reading: AsyncGenerator<Buffer>; first: IteratorResult<Buffer> },
    caller: Caller,
  ): AsyncIterableIterator<Buffer> {
    const entry = this.#registry.find(id);
    if (entry) entry.uses++;
    let isReleased = false;
    const release = async (): Promise<void> => {
      if (isReleased) return;
      isReleased = true;
      if (entry) {
        entry.uses--;
        entry.lastActive = Date.now();
      }
      await reading.return(undefined);
    };
    let ahead: IteratorResult<Buffer> | undefined = first;
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      async next() {
        try {
          caller.signal.throwIfAborted();
          const chunk = ahead ?? (await reading.next());
          ahead = undefined;
          if (chunk.done) await release();
          return chunk;
        } catch (error) {
          await release();
          throw error;
        }
      },
      async return() {
        await release();
        return { done: true, value: undefined };
      },
    };
  }

  async #measured<V>(report: (ms: number, ok: boolean) => void, work: () => Promise<V>): Promise<V> {
    const from = performance.now();
    let ok = false;
    try {
      const value = await work();
      ok = true;
      return value;
    } finally {
      report(performance.now() - from, ok);
    }
  }
}
