// One sandbox as an object.

import { Controller } from "./controller.ts";
import { EvalError, NotFoundError, SandboxGoneError } from "./errors.ts";
import { SandboxContexts } from "./sandbox-contexts.ts";
import { SandboxFiles } from "./sandbox-files.ts";
import { SandboxNetwork } from "./sandbox-network.ts";
import { SandboxPorts } from "./sandbox-ports.ts";
import { SandboxProcesses } from "./sandbox-processes.ts";
import type { EvalHandlers, EvalOptions } from "./eval-options.ts";
import type {
  BranchOptions,
  CallOptions,
  ControllerOptions,
  ExecOptions,
  ForkOptions,
  LogsOptions,
  OnceOptions,
  SpawnFields,
  UpdateSandboxOptions,
} from "./options.ts";
import type { EvalResult, ExecResult, Pong, Sandbox as SandboxInfo, SandboxStats, Snapshot } from "./schema.gen.ts";

/** Which daemon: a controller, or what it takes to make one */
export type SandboxConnection = Omit<ControllerOptions, "timeoutMs"> & {
  /** Used instead of a new one */
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
  /** What it may connect to */
  readonly network: SandboxNetwork;
  /** Servers inside it */
  readonly ports: SandboxPorts;
  /** Its live processes */
  readonly processes: SandboxProcesses;
  /** The daemon it lives in */
  readonly controller: Controller;
  private latest: SandboxInfo;

  /** A handle on a sandbox that is known already, such as one of {@link Controller.spawnSandboxes} */
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
   * Forks a snapshot into one sandbox. It lives until it is killed, its `ttlSecs` or `idleTimeoutSecs` have passed, or, with
   * `await using`, until the end of the block.
   *
   * @throws NotFoundError when there is no such snapshot
   * @throws ConnectionError when there is no daemon
   * @example
   * ```ts
   * await using sandbox = await Sandbox.create("python", { ttlSecs: 600, env: { KEY: "value" } });
   * ```
   */
  static async create(tag: string, opts?: SandboxOptions): Promise<Sandbox>;
  /** The same as the older SDK has it, with the tag among the options. */
  static async create(opts: SandboxOptions & { snapshotTag: string }): Promise<Sandbox>;
  static async create(first: string | (SandboxOptions & { snapshotTag: string }), rest: SandboxOptions = {}): Promise<Sandbox> {
    const { snapshotTag, ...opts } = typeof first === "string" ? { ...rest, snapshotTag: first } : first;
    const { controller: given, url, socket, token, retries, fetch, baseUrl, ...spawn } = opts;
    const controller = given ?? new Controller({ url, socket, token, retries, fetch, baseUrl });
    const [info] = await controller.spawnSandboxes(snapshotTag, { ...spawn, n: 1 });
    return new Sandbox(controller, info as SandboxInfo);
  }

  /**
   * A handle on a sandbox that exists, by id or name.
   * @throws NotFoundError when there is none
   */
  static async connect(id: string, opts: SandboxConnection & CallOptions = {}): Promise<Sandbox> {
    const { controller: given, signal, timeoutMs, ...connection } = opts;
    const controller = given ?? new Controller(connection);
    return new Sandbox(controller, await controller.getSandbox(id, { signal, timeoutMs }));
  }

  /**
   * Creates a sandbox, calls `fn` with it, and kills it whatever happens.
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

  /** What was last heard of it; {@link refresh} asks again */
  get info(): SandboxInfo {
    return this.latest;
  }

  /** Asks for {@link info} again. */
  async refresh(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.getSandbox(this.id, opts));
  }

  /**
   * Runs a program to its end. An array is the program and its arguments, without a shell; a string is given to `/bin/sh -c` inside
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
   * value in `value` where JSON can carry it. What the code displays, such as figures and tables, is in `results`, by MIME type.
   * With a callback, output and results come as they are made.
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

  /** Takes a snapshot of it as it is now, under the given tag or a made-up one; it goes on running. */
  async branch(tag?: string | BranchOptions, opts: BranchOptions = {}): Promise<Snapshot> {
    const given = typeof tag === "string" ? { ...opts, tag } : { ...tag, ...opts };
    return await this.controller.branchSandbox(this.id, given);
  }

  /**
   * Forks it as it is now into `n` more; it goes on running.
   *
   * @throws LimitError when the host has no room for them
   * @example
   * ```ts
   * const tips = await sandbox.fork(3);
   * ```
   */
  async fork(n: number = 1, opts: ForkOptions = {}): Promise<Sandbox[]> {
    const { sandboxes } = await this.controller.forkSandbox(this.id, { ...opts, n });
    return sandboxes.map((info) => new Sandbox(this.controller, info));
  }

  /** Stops its CPUs; its memory stays. */
  async pause(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.pauseSandbox(this.id, opts));
  }

  /** Saves its memory and disk and gives back what it uses; it keeps its id and its name, and goes on after `resume()`. */
  async suspend(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.suspendSandbox(this.id, opts));
  }

  /** Lets it go on after `pause()` or `suspend()`, with its clock set. */
  async resume(opts: CallOptions = {}): Promise<SandboxInfo> {
    return (this.latest = await this.controller.resumeSandbox(this.id, opts));
  }

  /** Lets it live so many seconds from now; null: until it is killed. */
  async extend(ttlSecs: number | null, opts: CallOptions = {}): Promise<SandboxInfo> {
    return await this.update({ ...opts, ttlSecs });
  }

  /** Renames it, replaces its metadata, changes its life. */
  async update(opts: UpdateSandboxOptions): Promise<SandboxInfo> {
    return (this.latest = await this.controller.updateSandbox(this.id, opts));
  }

  /** What it uses. */
  async stats(opts: CallOptions = {}): Promise<SandboxStats> {
    return await this.controller.sandboxStats(this.id, opts);
  }

  /** What its console, its agent or its VMM wrote, as text that comes bit by bit. */
  logs(opts: LogsOptions = {}): AsyncIterable<string> {
    return this.controller.logs(this.id, opts);
  }

  /** Ends it; resolves when everything of it is gone. False when it was gone already. */
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
