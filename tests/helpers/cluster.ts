// A real cluster on this machine: daemons with their own stores, and gateways as processes of their own.

import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { Controller } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { patience } from "./patience.ts";

const CLI = resolve(import.meta.dirname, "..", "..", "packages", "cli", "bin", "forkd.mjs");

/** `agentsBind`: where it serves the agent-sandbox API; undefined: it does not */
export type TestGateway = {
  controller: Controller;
  bind: string;
  agentsBind: string | undefined;
  process: ChildProcess;
  kill9: () => Promise<void>;
};

export class TestCluster implements AsyncDisposable {
  readonly nodes: TestDaemon[] = [];
  readonly gateways: TestGateway[] = [];
  readonly token: string = randomBytes(24).toString("hex");
  readonly dir: string;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async make(): Promise<TestCluster> {
    const cluster = new TestCluster(await mkdtemp(join(tmpdir(), "forkd-cluster-")));
    await writeFile(cluster.keyFile, randomBytes(32).toString("hex"), { mode: 0o600 });
    await writeFile(cluster.#tokenFile, cluster.token, { mode: 0o600 });
    return cluster;
  }

  get keyFile(): string {
    return join(this.dir, "cluster.key");
  }

  get stateFolder(): string {
    return join(this.dir, "state");
  }

  get #tokenFile(): string {
    return join(this.dir, "admin.token");
  }

  async addNode(options: string[] = [], prepare: (daemon: TestDaemon) => Promise<unknown> = async () => undefined): Promise<TestDaemon> {
    const daemon = await TestDaemon.make();
    this.nodes.push(daemon);
    await prepare(daemon);
    await daemon.up(["--bind", "127.0.0.1:0", "--cluster-key-file", this.keyFile, ...options]);
    return daemon;
  }

  async addGateway(options: string[] = []): Promise<TestGateway> {
    const { FORKD_URL: _url, FORKD_TOKEN: _token, ...env } = process.env;
    const args = [
      "--disable-warning=ExperimentalWarning",
      CLI,
      "gateway",
      `--nodes=${this.nodes.map(({ bind }) => `http://${bind}`).join(",")}`,
      `--state=${this.stateFolder}`,
      `--cluster-key-file=${this.keyFile}`,
      `--token-file=${this.#tokenFile}`,
      "--bind=127.0.0.1:0",
      "--drain-secs=1",
      "--json",
      ...options,
    ];
    const child = spawn(process.execPath, args, { env: { ...env, NO_COLOR: "1" }, stdio: ["ignore", "pipe", "pipe"] });
    let log = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (log = (log + text).slice(-20_000)));
    let text = "";
    for await (const line of createInterface({ input: child.stdout })) {
      text += line;
      if (line.startsWith("}") || /^\{.*\}$/.test(line)) break;
    }
    if (text === "") throw new Error(`the gateway did not start: ${log}`);
    const { bind, agents_bind: agentsBind } = JSON.parse(text) as { bind?: string; agents_bind?: string };
    if (bind === undefined) {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
      throw new Error(`the gateway did not start: ${text} ${log}`);
    }
    child.stdout.resume();
    const controller = new Controller({ url: `http://${bind}`, token: this.token, timeoutMs: patience() });
    const kill9 = async (): Promise<void> => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    };
    const gateway = { controller, bind, agentsBind, process: child, kill9 };
    this.gateways.push(gateway);
    return gateway;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { kill9 } of this.gateways) await kill9();
    const failures: unknown[] = [];
    for (const node of this.nodes) await node[Symbol.asyncDispose]().catch((error: unknown) => failures.push(error));
    await rm(this.dir, { recursive: true, force: true });
    if (failures.length > 0) throw failures[0];
  }
}

/** Code of the node in the id of a sandbox */
export function nodeOf(id: string): string {
  return id.slice(3, 7);
}
