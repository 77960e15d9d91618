// A daemon for the benchmark, with its own store that borrows the user's images; both are removed at the end.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, prepareHome, resolveHome } from "@forkd/runtime";
import { Controller } from "forkd";
import { ensureImage, type BenchOptions } from "./setup.ts";

import type { Home } from "@forkd/runtime";

const ROOT = resolve(import.meta.dirname, "..", "..");
const DAEMON = join(ROOT, "packages", "daemon", "bin", "forkd-daemon.mjs");
const CLI = join(ROOT, "packages", "cli", "bin", "forkd.mjs");
const NODE_OPTIONS = ["--disable-warning=ExperimentalWarning"];
/** the daemon ends by itself when this process was killed and cannot end it */
const EXIT_WHEN_IDLE_SECS = 600;
/** forks in progress may fail when the benchmark is interrupted */
const DRAIN_SECS = 2;
const STOP_WITHIN_MS = 8000;
const GONE_WITHIN_MS = 5000;
const GONE_POLL_MS = 20;

type Borrowed = "images" | "guestKernels" | "cache";

/**
 * `bind`: an address to listen on beside the socket; `clusterKeyFile`: makes it a node of a cluster; `borrow`: parts of the
 * user's store, by default all of these
 */
type Settings = { maxSandboxes: number; bind?: string; clusterKeyFile?: string; borrow?: readonly Borrowed[] };

const ALL: readonly Borrowed[] = ["images", "guestKernels", "cache"];

export class OwnDaemon implements AsyncDisposable {
  readonly home: Home;
  readonly controller: Controller;
  readonly #dir: string;
  readonly #env: NodeJS.ProcessEnv;
  #process: ChildProcess | undefined;
  #closed: Promise<void> | undefined;
  #bind = "";

  private constructor(dir: string) {
    this.#dir = dir;
    const { FORKD_URL: _url, FORKD_TOKEN: _token, FORKD_CONFIG: _config, ...rest } = process.env;
    this.#env = { ...rest, FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run"), FORKD_NO_AUTOSTART: "1", NO_COLOR: "1" };
    this.home = resolveHome(this.#env);
    this.controller = new Controller({ socket: this.socket, token: "", timeoutMs: 120_000 });
  }

  static async start(opts: BenchOptions & Settings): Promise<OwnDaemon> {
    const machine = await prepareHome(resolveHome());
    await ensureImage(machine, opts);
    const daemon = new OwnDaemon(await mkdtemp(join(tmpdir(), "forkd-bench-")));
    try {
      await mkdir(daemon.home.root, { mode: 0o700 });
      for (const part of opts.borrow ?? ALL) await symlink(machine[part], daemon.home[part]);
      // probes of the machine are done once
      const isProbe = (path: string): boolean => path === machine.cache || basename(path).startsWith("accelerator");
      if (opts.borrow?.includes("cache") === false) await cp(machine.cache, daemon.home.cache, { recursive: true, filter: isProbe });
      await daemon.#up(opts);
      return daemon;
    } catch (error) {
      await daemon.close();
      throw error;
    }
  }

  get socket(): string {
    return join(this.home.run, "forkd.sock");
  }

  /** Its address, if `bind` was given */
  get url(): string {
    return `http://${this.#bind}`;
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** The same store for a runtime in this process, whose VMs have their own run folder */
  get homeForRuntime(): Home {
    return { ...this.home, run: join(this.#dir, "own"), flat: join(this.#dir, "own-flat") };
  }

  /** Duration of one run of the command line */
  async cliMs(args: readonly string[]): Promise<number> {
    const began = performance.now();
    const child = spawn(process.execPath, [...NODE_OPTIONS, CLI, ...args], { env: this.#env, stdio: ["ignore", "pipe", "pipe"] });
    const [stderr] = await Promise.all([text(child.stderr), text(child.stdout), once(child, "close")]);
    if (child.exitCode !== 0) throw new ForkdError("DAEMON_FAILED", `forkd ${args.join(" ")} failed: ${stderr.trim()}`);
    return performance.now() - began;
  }

  /** The warden of this daemon's VMs */
  async wardenPid(): Promise<number | undefined> {
    for (const pid of await this.#processes()) if ((await cmdlineOf(pid)).includes("forkd-warden")) return pid;
    return undefined;
  }

  /** Ends the daemon with all its VMs and removes its store */
  async close(): Promise<void> {
    this.#closed ??= this.#release();
    return this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #up({ maxSandboxes, bind = "none", clusterKeyFile }: Settings): Promise<void> {
    const node = clusterKeyFile === undefined ? {} : { "cluster-key-file": clusterKeyFile };
    const settings = { ...node, bind, "exit-when-idle-secs": EXIT_WHEN_IDLE_SECS, "max-sandboxes": maxSandboxes, "drain-secs": DRAIN_SECS };
    const options = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const child = spawn(process.execPath, [...NODE_OPTIONS, "--max-semi-space-size=2", DAEMON, ...options], {
      env: { ...this.#env, FORKD_READY_FD: "3" },
      stdio: ["ignore", "ignore", "pipe", "pipe"],
      // Ctrl-C is handled by the benchmark, which ends the daemon after the measurement
      detached: true,
    });
    this.#process = child;
    const stderr = text(child.stdio[2] as NodeJS.ReadableStream);
    const ready = await text(child.stdio[3] as NodeJS.ReadableStream);
    const line = ready === "" ? {} : (JSON.parse(ready) as { ready?: boolean; bind?: string | null; error?: string });
    if (!line.ready) throw new ForkdError("DAEMON_FAILED", `The daemon did not start: ${line.error ?? (await stderr)}`);
    this.#bind = line.bind ?? "";
  }

  async #release(): Promise<void> {
    const child = this.#process;
    if (child && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      const late = sleep(STOP_WITHIN_MS, "late", { ref: false });
      // a daemon that does not answer, because it is starting or broken, is ended too
      const asked = this.controller.stop({ killSandboxes: true, timeoutMs: STOP_WITHIN_MS }).catch(() => child.kill("SIGTERM"));
      if ((await Promise.race([exited, late])) === "late") child.kill("SIGKILL");
      await Promise.all([exited, asked]);
    }
    // the warden and the VMs outlive a daemon that was killed
    for (const deadline = Date.now() + GONE_WITHIN_MS; Date.now() < deadline; await sleep(GONE_POLL_MS)) {
      const pids = await this.#processes();
      if (pids.length === 0) break;
      for (const pid of pids) killIfThere(pid);
    }
    await rm(this.#dir, { recursive: true, force: true });
  }

  /** All processes that name the benchmark's folder, whose name is unique */
  async #processes(): Promise<number[]> {
    const pids = (await readdir("/proc")).map(Number).filter((pid) => Number.isInteger(pid) && pid !== process.pid);
    const named = await Promise.all(pids.map(async (pid) => ((await cmdlineOf(pid)).includes(this.#dir) ? [pid] : [])));
    return named.flat();
  }
}

async function cmdlineOf(pid: number): Promise<string> {
  try {
    return await readFile(`/proc/${pid}/cmdline`, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES") return "";
    throw error;
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
