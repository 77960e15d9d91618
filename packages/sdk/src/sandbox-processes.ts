// Processes of one sandbox.

import { ForkdError } from "./errors.ts";
import { Process } from "./process.ts";
import type { Controller } from "./controller.ts";
import type { CallOptions } from "./call-options.ts";
import type { OutputHandlers, ProcessFields, WatchProcessOptions } from "./options.ts";
import type { ProcessStreamEvent } from "./process-events.ts";
import type { Process as ProcessInfo } from "./schema.gen.ts";

/** Processes in a sandbox. They run independently of connections. Each is named by its id or its tag. */
export class SandboxProcesses {
  private readonly controller: Controller;
  private readonly sandbox: string;

  constructor(controller: Controller, sandbox: string) {
    this.controller = controller;
    this.sandbox = sandbox;
  }

  /**
   * Starts a process. An array is the program and its arguments, without a shell; a string is passed to `/bin/sh -c` inside the
   * guest. It continues when this program ends or the connection breaks, and can be attached to again.
   *
   * @throws InvalidRequestError when the program could not be started
   * @throws ConflictError when another process is running under the tag
   * @example
   * ```ts
   * const server = await sandbox.processes.start(["python3", "-m", "http.server"], { tag: "web" });
   * const shell = await sandbox.processes.start("bash", { terminal: { rows: 24, cols: 80 }, onStdout: (text) => screen.write(text) });
   * ```
   */
  async start(
    command: string | string[],
    opts: ProcessFields & OutputHandlers & { signal?: AbortSignal | undefined } = {},
  ): Promise<Process> {
    const { onStdout, onStderr, onLost, signal, ...fields } = opts;
    const args = typeof command === "string" ? ["/bin/sh", "-c", command] : command;
    const stop = stopOf(signal);
    const events = this.controller.streamProcess(this.sandbox, args, { ...fields, signal: stop.signal });
    return await this.handle(events, stop, { onStdout, onStderr, onLost });
  }

  /**
   * Attaches to a process that is running or ended recently, and reads its output from any retained position.
   *
   * @throws NotFoundError when there is no such process
   * @example
   * ```ts
   * const server = await sandbox.processes.attach("web", { from: "now", onStdout: (text) => console.log(text) });
   * ```
   */
  async attach(process: number | string, opts: WatchProcessOptions & OutputHandlers = {}): Promise<Process> {
    const { onStdout, onStderr, onLost, signal, ...where } = opts;
    const stop = stopOf(signal);
    const events = this.controller.watchProcess(this.sandbox, String(process), { ...where, signal: stop.signal });
    return await this.handle(events, stop, { onStdout, onStderr, onLost });
  }

  /** Lists running processes, and the newest 64 that have ended. */
  async list(opts: CallOptions = {}): Promise<ProcessInfo[]> {
    return await this.controller.listProcesses(this.sandbox, opts);
  }

  /** State of one process. */
  async get(process: number | string, opts: CallOptions = {}): Promise<ProcessInfo> {
    return await this.controller.getProcess(this.sandbox, String(process), opts);
  }

  /** Kills a process and its process group; resolves when it has ended. */
  async kill(process: number | string, opts: CallOptions = {}): Promise<void> {
    await this.controller.killProcess(this.sandbox, String(process), opts);
  }

  private async handle(events: AsyncGenerator<ProcessStreamEvent>, stop: AbortController, handlers: OutputHandlers): Promise<Process> {
    const first = await events.next();
    if (first.done === true || first.value.type !== "started")
      throw new ForkdError("BAD_ANSWER", "The daemon did not name the process.", { hint: "Check the versions of both." });
    const started = first.value;
    return new Process({ controller: this.controller, sandbox: this.sandbox, events, started, stop }, handlers);
  }
}

/** Aborts with the caller's signal, or when the handle is detached */
function stopOf(signal: AbortSignal | undefined): AbortController {
  const stop = new AbortController();
  if (signal?.aborted === true) stop.abort(signal.reason);
  else signal?.addEventListener("abort", () => stop.abort(signal.reason), { once: true });
  return stop;
}
