// Calls about live processes in a sandbox. A process is named by its id or its tag.

import { FileCalls } from "./file-calls.ts";
import { placeOf, processEventsOf, type ProcessStreamEvent } from "./process-events.ts";
import { path, split } from "./wire.ts";
import type { FileContent } from "./file-options.ts";
import type {
  CallOptions,
  ProcessFields,
  SignalName,
  SignalOptions,
  StartProcessOptions,
  WatchProcessOptions,
  WriteStdinOptions,
} from "./options.ts";
import type * as wire from "./schema.gen.ts";

export class ProcessCalls extends FileCalls {
  /**
   * Starts a process and does not wait for it; no shell. It goes on when nobody watches it. Never repeated by itself, unless
   * `idempotencyKey` is given. {@link Sandbox.processes} has handles that also read and write.
   *
   * @throws InvalidRequestError when the program could not be started
   * @throws ConflictError when another process runs under the tag
   */
  async startProcess(id: string, args: string[], opts: StartProcessOptions = {}): Promise<wire.Process> {
    const { fields, call } = split(opts);
    const json: wire.StartProcess = { args, ...fields };
    return await this.client.json("POST", path`/v1/sandboxes/${id}/processes`, { ...call, json });
  }

  /** Starts a process and watches it from its first byte on: `started`, its output, `exit`. Connections that break are put together again. */
  streamProcess(id: string, args: string[], opts: ProcessFields & { signal?: AbortSignal } = {}): AsyncGenerator<ProcessStreamEvent> {
    const { fields } = split(opts);
    const json: wire.StartProcess = { args, ...fields };
    const request = { method: "POST" as const, path: path`/v1/sandboxes/${id}/processes`, call: { json } };
    return processEventsOf(this.client, { ...request, outputPath: (process) => outputPath(id, process) }, opts.signal);
  }

  /** Processes that were started and run, and the newest 64 that have ended. */
  async listProcesses(id: string, opts: CallOptions = {}): Promise<wire.Process[]> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/processes`, opts);
  }

  /** One process. */
  async getProcess(id: string, process: string, opts: CallOptions = {}): Promise<wire.Process> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/processes/${process}`, opts);
  }

  /** Watches a process: `started`, its output from any place that is kept, `exit`. Connections that break are put together again. */
  watchProcess(id: string, process: string, opts: WatchProcessOptions = {}): AsyncGenerator<ProcessStreamEvent> {
    // false is left out of a query, and here it is what is not the default
    const query = { ...placeOf(opts.from), follow: opts.follow === false ? "false" : undefined };
    const request = { method: "GET" as const, path: outputPath(id, process), call: { query } };
    return processEventsOf(this.client, { ...request, outputPath: (known) => outputPath(id, known) }, opts.signal);
  }

  /** Writes to a process's stdin; resolves when all of it was handed over. A stream is sent as it comes. */
  async writeStdin(id: string, process: string, content: FileContent, opts: WriteStdinOptions = {}): Promise<void> {
    const { close, ...call } = opts;
    const at = path`/v1/sandboxes/${id}/processes/${process}/stdin`;
    await this.client.empty("POST", at, { ...call, query: { close }, content, canRepeat: false });
  }

  /** Sends a process a signal. */
  async signalProcess(id: string, process: string, signal: SignalName, opts: SignalOptions = {}): Promise<void> {
    const { scope, ...call } = opts;
    const json: wire.SignalProcess = { signal, scope };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/processes/${process}/signal`, { ...call, json });
  }

  /** Tells a process the size of its terminal. */
  async resizeProcess(id: string, process: string, size: wire.TerminalSize, opts: CallOptions = {}): Promise<void> {
    const at = path`/v1/sandboxes/${id}/processes/${process}/resize`;
    await this.client.empty("POST", at, { ...opts, json: size, canRepeat: true });
  }

  /** Kills a process and its group; resolves when it has ended. */
  async killProcess(id: string, process: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/sandboxes/${id}/processes/${process}`, opts);
  }
}

function outputPath(id: string, process: string): string {
  return path`/v1/sandboxes/${id}/processes/${process}/output`;
}
