// A real daemon process with its own store, which links to the images of the machine's store.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { Controller } from "forkd";
import { cmdlineOf, disksOfVms, disksOfZygotes, isRunning, isZygote, namesIn, processIds, waitUntilGone } from "./host.ts";
import { patience } from "./patience.ts";
import { warmSnapshot } from "./shared-stores.ts";
import { ensurePythonImage, PYTHON_WARM } from "./vm.ts";

import type { Home } from "@forkd/runtime";

const ROOT = resolve(import.meta.dirname, "..", "..");
const DAEMON = join(ROOT, "packages", "daemon", "bin", "forkd-daemon.mjs");
const CLI = join(ROOT, "packages", "cli", "bin", "forkd.mjs");
const NODE_OPTIONS = ["--disable-warning=ExperimentalWarning"];

export type CliResult = {
  code: number | null;
  stdout: string;
  stderr: string;
  /** standard output as raw bytes */
  bytes: Buffer;
};

type Borrowed = "images" | "guestKernels" | "cache";
type CliOptions = { stdin?: string | Uint8Array; env?: NodeJS.ProcessEnv; cwd?: string };

export class TestDaemon implements AsyncDisposable {
  readonly home: Home;
  readonly env: NodeJS.ProcessEnv;
  /** what `env` has besides the environment of the test */
  readonly ownEnv: Record<string, string>;
  readonly controller: Controller;
  readonly #dir: string;
  #process: ChildProcess | undefined;
  /** command prefix of the daemon, such as one that enters a network namespace */
  prefix: string[] = [];
  /** HOST:PORT if the daemon listens on TCP */
  bind: string | null = null;

  private constructor(dir: string) {
    this.#dir = dir;
    const { FORKD_URL: _url, FORKD_TOKEN: _token, ...rest } = process.env;
    // a folder without huge pages, whatever the machine's /dev/shm has
    this.ownEnv = { FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run"), FORKD_HUGEPAGES_DIR: dir, NO_COLOR: "1" };
    this.env = { ...rest, ...this.ownEnv };
    this.home = resolveHome(this.env);
    this.controller = new Controller({ socket: this.socket, timeoutMs: patience() });
  }

  /** Makes a store without a running daemon. `borrow`: the parts that link to the machine's store */
  static async make(borrow: readonly Borrowed[] = ["images", "guestKernels", "cache"]): Promise<TestDaemon> {
    const machine = await prepareHome(resolveHome());
    await ensurePythonImage(machine);
    const daemon = new TestDaemon(await mkdtemp(join(tmpdir(), "forkd-test-daemon-")));
    await mkdir(daemon.home.root, { recursive: true, mode: 0o700 });
    for (const part of borrow) await symlink(machine[part], daemon.home[part]);
    // Copy the results of the accelerator probes: each probe boots a guest
    const isProbe = (path: string): boolean => path === machine.cache || basename(path).startsWith("accelerator");
    if (!borrow.includes("cache")) await cp(machine.cache, daemon.home.cache, { recursive: true, filter: isProbe });
    return daemon;
  }

  /** Makes a store and starts a daemon on it */
  static async start(options: string[] = []): Promise<TestDaemon> {
    const daemon = await TestDaemon.make();
    try {
      await daemon.up(options);
      return daemon;
    } catch (error) {
      // The daemon is not ready, so it cannot end its sandboxes on request
      await daemon.kill9();
      await daemon[Symbol.asyncDispose]();
      throw error;
    }
  }

  get socket(): string {
    return join(this.home.run, "forkd.sock");
  }

  get pid(): number {
    assert.ok(this.#process?.pid, "the daemon is not running");
    return this.#process.pid;
  }

  /** Starts the daemon and waits until it is ready. Its log goes to the file FORKD_TEST_LOG if that is set */
  async up(options: string[] = [], opts: { through?: string[] } = {}): Promise<void> {
    const args = [
      ...NODE_OPTIONS,
      "--max-semi-space-size=2",
      DAEMON,
      ...(options.includes("--bind") ? [] : ["--bind", "none"]),
      ...options,
    ];
    const log = process.env["FORKD_TEST_LOG"] ? openSync(process.env["FORKD_TEST_LOG"], "a") : "pipe";
    // The prefix program executes the daemon in its own process, for example in other namespaces
    const [program = "", ...rest] = [...(opts.through ?? this.prefix), process.execPath, ...args];
    const child = spawn(program, rest, { env: { ...this.env, FORKD_READY_FD: "3" }, stdio: ["ignore", "pipe", log, "pipe"] });
    this.#process = child;
    child.stdout?.resume();
    const stderr = child.stderr ? text(child.stderr) : Promise.resolve("");
    const ready = child.stdio[3] && "on" in child.stdio[3] ? await text(child.stdio[3] as NodeJS.ReadableStream) : "";
    if (ready === "") throw new Error(`the daemon did not start: ${await stderr}`);
    const line = JSON.parse(ready) as { ready?: boolean; bind?: string | null; error?: string; code?: string };
    if (!line.ready) throw Object.assign(new Error(line.error), { code: line.code });
    this.bind = line.bind ?? null;
  }

  /** Stops the daemon with SIGTERM; its sandboxes keep running */
  async down(): Promise<void> {
    this.#process?.kill("SIGTERM");
    await this.exited();
  }

  async kill9(): Promise<void> {
    this.#process?.kill("SIGKILL");
    await this.exited();
  }

  /** The snapshot `python`: numpy imported, 256 MiB */
  async makePython(tag = "python"): Promise<void> {
    await warmSnapshot(this.home, tag, PYTHON_WARM);
  }

  /** Runs the CLI against this daemon */
  async cli(args: readonly string[], opts: CliOptions = {}): Promise<CliResult> {
    const child = spawn(process.execPath, [...NODE_OPTIONS, CLI, ...args], {
      env: { ...this.env, FORKD_NO_AUTOSTART: "1", ...opts.env },
      stdio: ["pipe", "pipe", "pipe"],
      ...(opts.cwd ? { cwd: opts.cwd } : {}),
    });
    child.stdin.on("error", () => undefined); // EPIPE: the command may end without reading its input
    child.stdin.end(opts.stdin ?? "");
    const [bytes, stderr] = await Promise.all([buffer(child.stdout), text(child.stderr), once(child, "close")]);
    return { code: child.exitCode, stdout: bytes.toString(), stderr, bytes };
  }

  /** Pids of all processes with a path of this daemon in their arguments: VMMs, warden, daemon */
  processes(): number[] {
    return processIds().filter((pid) => cmdlineOf(pid).includes(this.#dir));
  }

  /** Pids of the VMMs of sandboxes and pools, without zygotes */
  vmms(): number[] {
    return this.processes().filter((pid) => cmdlineOf(pid).includes("qemu-system") && !isZygote(pid));
  }

  /** Folders of single VMs in the run folder */
  async vmFolders(): Promise<string[]> {
    return (await namesIn(join(this.home.run, "daemon"))).filter((name) => name !== "home" && !/^(?:warden\.|zy-)/.test(name));
  }

  /** Stops the daemon and asserts that no process, VM folder or flat image remains */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (this.#process?.exitCode === null && this.#process.signalCode === null) {
        await this.controller.killSandboxes({ all: true });
        await this.down();
      }
      await this.#endWarden();
      assert.deepEqual(await this.vmFolders(), [], "folders of VMs are left");
      if (existsSync(this.home.vms))
        assert.deepEqual([...(await disksOfVms(this.home)), ...(await disksOfZygotes(this.home))], [], "disks of VMs are left");
      if (existsSync(this.home.staging)) assert.deepEqual(await namesIn(this.home.staging), [], "staging folders are left");
    } finally {
      await rm(this.#dir, { recursive: true, force: true });
    }
  }

  /** Ends the warden, which would exit by itself only after a delay */
  async #endWarden(): Promise<void> {
    const pids = this.processes();
    const others = pids.filter((pid) => !cmdlineOf(pid).includes("forkd-warden"));
    for (const pid of pids) if (isRunning(pid)) process.kill(pid, "SIGKILL");
    assert.deepEqual(await waitUntilGone(pids, patience(5)), []);
    assert.deepEqual(others, [], "processes are left");
  }

  /** Waits until the daemon process has exited, for any reason */
  async exited(): Promise<void> {
    const child = this.#process;
    if (child && child.exitCode === null && child.signalCode === null) await once(child, "exit");
  }
}
