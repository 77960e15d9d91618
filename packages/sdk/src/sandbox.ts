// One sandbox as an object.

import { Controller } from "./controller.ts";
import { EvalError, NotFoundError, SandboxGoneError } from "./errors.ts";
import { SandboxContexts } from "./sandbox-contexts.ts";
import { SandboxFiles } from "./sandbox-files.ts";
import { SandboxNetwork } from "./sandbox-network.ts";
import { SandboxPorts } from "./sandbox-ports.ts";
import { SandboxProcesses } from "./sandbox-processes.ts";
import type { CallOptions, ControllerOptions, OnceOptions } from "./call-options.ts";
import type { BranchOptions, ExecOptions, LogsOptions, UpdateSandboxOptions } from "./options.gen.ts";
import type { EvalHandlers, EvalOptions, ForkOptions, SpawnFields } from "./options.ts";
import type { EvalResult, ExecResult, Pong, Sandbox as SandboxInfo, SandboxStats, Snapshot } from "./schema.gen.ts";

/** The daemon: a controller, or options for a new one */
export type SandboxConnection = Omit<ControllerOptions, "timeoutMs"> & {
  /** Used in place of a new one */
  controller?: Controller | undefined;
};

export type SandboxOptions = SandboxConnection & SpawnFields & OnceOptions;

/**
 * A running VM, forked from a snapshot.
 *
 * @example
 * ```ts
 * await using sandbox = await Sandbox.create("python");
 * await sandbox.eval("x = numpy.arange(5); x.sum()");
 * const tips = await sandbox.fork(3);
 * const results = await Promise.all(tips.map((tip, i) => tip.eval(`strategy(${i})`)));
 * ```
 */
export class Sandbox {
  /** The sandbox's id */
  readonly id: string;
  /** Its interpreters, for {@link eval} */
  readonly contexts: SandboxContexts;
  /** Its files */
  readonly files: SandboxFiles;
  /** Its network policy */
  readonly network: SandboxNetwork;
  /** Servers inside it */
  readonly ports: SandboxPorts;
  /** Its processes */
  readonly processes: SandboxProcesses;
  /** The daemon of the sandbox */
  readonly controller: Controller;
  private latest: SandboxInfo;

  /** A handle on a known sandbox, such as one of {@link Controller.spawnSandboxes} */
  constructor(controller: Controller, info: SandboxInfo) {
    this.controller = controller;
    this.id = info.id;
    this.latest = info;
    this.contexts = new SandboxContexts(controller, info.id);
    this.files = new SandboxFiles(controller, info.id);
    this.network = new SandboxNetwork(controller, info.id);
    this.ports = new SandboxPorts(controller, info.id);
    this.processes = new SandboxProcesses(controller, info.id);
  }

  /**
   * Forks a snapshot into one sandbox. It runs until it is killed, its `ttlSecs` or `idleTimeoutSecs` pass, or, with `await using`, the
   * block ends.
   *
   * @throws NotFoundError when the snapshot does not exist
   * @throws ConnectionError when the daemon cannot be reached
   * @example
   * ```ts
   * await using sandbox = await Sandbox.create("python", { ttlSecs: 600, env: { KEY: "value" } });
   * ```
   */
  static async create(tag: string, opts?: SandboxOptions): Promise<Sandbox>;
  /** The form of the older SDK, with the tag among the options. */
  static async create(opts: SandboxOptions & { snapshotTag: string }): Promise<Sandbox>;
  static async create(first: string | (SandboxOptions & { snapshotTag: string }), rest: SandboxOptions = {}): Promise<Sandbox> {
    const { snapshotTag, ...opts } = typeof first === "string" ? { ...rest, snapshotTag: first } : first;
    const { controller: given, url, socket, token, project, retries, fetch, baseUrl, ...spawn } = opts;
    const controller = given ?? new Controller({ url, socket, token, project, retries, fetch, baseUrl });
    const [info] = await controller.spawnSandboxes(snapshotTag, { ...spawn, n: 1 });
    return new Sandbox(controller, info as SandboxInfo);
  }

  /**
   * A handle on an existing sandbox, by id or name.
   * @throws NotFoundError when there is no such sandbox
   */
  static async connect(id: string, opts: SandboxConnection & CallOptions = {}): Promise<Sandbox> {
    const { controller: given, signal, timeoutMs, ...connection } = opts;
    const controller = given ?? new Controller(connection);
    return new Sandbox(controller, await controller.getSandbox(id, { signal, timeoutMs }));
  }

  /**
   * Creates a sandbox, calls `fn` with it, and kills it, also when `fn` throws.
   *
   * @example
   * ```ts
   * const sum = await Sandbox.with("python", (sandbox) => sandbox.eval("1 + 1"));
   * ```
   */
  static async with<T>(tag: string, fn: (sandbox: Sandbox) => Promise<T> | T, opts: SandboxOptions = {}): Promise<T> {
    const sandbox = await Sandbox.create(tag, opts);
    try {
      return await fn(sandbox);
    } finally {
      await sandbox.kill();
    }
  }

  /** The last known state; {@link refresh} updates it */
  get info(): SandboxInfo {
    return this.latest;
  }

  /** Updates {@link info}. */
  async refresh(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.getSandbox(this.id, opts));
  }

  /**
   * Runs a program to its end. An array is the program and its arguments, without a shell; a string is passed to `/bin/sh -c` inside
   * the guest. An exit code other than 0 is a result, not an error.
   *
   * @throws InvalidRequestError when the program could not be started
   * @throws SandboxGoneError when the sandbox ended
   * @example
   * ```ts
   * const { stdout } = await sandbox.exec(["uname", "-a"]);
   * const { exit_code } = await sandbox.exec("cd /srv && make | tee log");
   * ```
   */
  async exec(command: string | string[], opts: ExecOptions = {}): Promise<ExecResult> {
    const args = typeof command === "string" ? ["/bin/sh", "-c", command] : command;
    return await this.controller.execCommand(this.id, args, opts);
  }

  /**
   * Runs code in the warm interpreter, which keeps its state. The last expression is the result: as text in `result`, and as a
   * value in `value` if JSON can represent it. Displayed objects, such as figures and tables, are in `results`, by MIME type.
   * With a callback, output and results are reported while the code runs.
   *
   * @throws EvalError when the code raised an error, unless `throwOnError` is false
   * @throws TimeoutError after `timeoutSecs`; the interpreter stays usable
   * @example
   * ```ts
   * const { value } = await sandbox.eval("sum(range(5))"); // 10
   * const { results } = await sandbox.eval("plt.plot([1, 2]); plt.show()");
   * const png = results[0]?.data["image/png"]; // base64
   * ```
   */
  async eval(code: string, opts: EvalOptions & EvalHandlers & { throwOnError?: boolean | undefined } = {}): Promise<EvalResult> {
    const { throwOnError = true, ...rest } = opts;
    const result = await this.controller.evalCode(this.id, code, rest);
    if (throwOnError && result.exit_code !== 0) throw new EvalError(result);
    return result;
  }

  /** One round trip to the agent inside the guest. */
  async ping(opts: CallOptions = {}): Promise<Pong> {
    return await this.controller.pingSandbox(this.id, opts);
  }

  /** Takes a snapshot of the sandbox, under the given tag or a generated one. The sandbox continues to run. */
  async branch(tag?: string | BranchOptions, opts: BranchOptions = {}): Promise<Snapshot> {
    const given = typeof tag === "string" ? { ...opts, tag } : { ...tag, ...opts };
    return await this.controller.branchSandbox(this.id, given);
  }

  /**
   * Forks the running sandbox into `n` sandboxes; it continues to run.
   *
   * @throws LimitError when the host has not enough resources
   * @example
   * ```ts
   * const tips = await sandbox.fork(3);
   * ```
   */
  async fork(n: number = 1, opts: ForkOptions = {}): Promise<Sandbox[]> {
    const { sandboxes } = await this.controller.forkSandbox(this.id, { ...opts, n });
    return sandboxes.map((info) => new Sandbox(this.controller, info));
  }

  /** Stops its CPUs; its memory stays allocated. */
  async pause(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.pauseSandbox(this.id, opts));
  }

  /** Saves its memory and disk and frees its resources. It keeps its id and name; `resume()` continues it. */
  async suspend(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.suspendSandbox(this.id, opts));
  }

  /** Continues a paused or suspended sandbox and sets its clock. */
  async resume(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.resumeSandbox(this.id, opts));
  }

  /** Sets the seconds from now until it ends; null: it does not end by itself. */
  async extend(ttlSecs: number | null, opts: CallOptions = {}): Promise<SandboxInfo> {
    return await this.update({ ...opts, ttlSecs });
  }

  /** Changes its name, metadata or time to live. */
  async update(opts: UpdateSandboxOptions): Promise<SandboxInfo> {
    return (this.latest = await this.controller.updateSandbox(this.id, opts));
  }

  /** Resource usage. */
  async stats(opts: CallOptions = {}): Promise<SandboxStats> {
    return await this.controller.sandboxStats(this.id, opts);
  }

  /** Log of its console, its agent or its VMM, as text in pieces. */
  logs(opts: LogsOptions = {}): AsyncIterable<string> {
    return this.controller.logs(this.id, opts);
  }

  /** Ends it; resolves when all its resources are freed. False when it had ended already. */
  async kill(opts: CallOptions = {}): Promise<boolean> {
    try {
      await this.controller.killSandbox(this.id, opts);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError || error instanceof SandboxGoneError) return false;
      throw error;
    }
  }

  /** {@link kill}, for `await using` */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
