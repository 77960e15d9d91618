// A gateway for the benchmark, as a process of its own, with an operator's token and a folder that is removed at the end.

import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { ForkdError } from "@forkd/runtime";

const CLI = resolve(import.meta.dirname, "..", "..", "packages", "cli", "bin", "forkd.mjs");
const NODE_OPTIONS = ["--disable-warning=ExperimentalWarning"];

export class OwnGateway implements AsyncDisposable {
  readonly token: string = randomBytes(24).toString("hex");
  url = "";
  readonly #dir: string;
  #process: ChildProcess | undefined;

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes the key of the cluster, which its nodes need before the gateway starts */
  static async prepare(): Promise<OwnGateway> {
    const gateway = new OwnGateway(await mkdtemp(join(tmpdir(), "forkd-bench-gateway-")));
    await writeFile(gateway.keyFile, randomBytes(32).toString("hex"), { mode: 0o600 });
    await writeFile(gateway.#tokenFile, gateway.token, { mode: 0o600 });
    return gateway;
  }

  get keyFile(): string {
    return join(this.#dir, "cluster.key");
  }

  get #tokenFile(): string {
    return join(this.#dir, "operator.token");
  }

  async up(node: string): Promise<void> {
    const options = {
      nodes: node,
      state: join(this.#dir, "state"),
      "cluster-key-file": this.keyFile,
      "token-file": this.#tokenFile,
      bind: "127.0.0.1:0",
      "drain-secs": "1",
    };
    const args = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
    const child = spawn(process.execPath, [...NODE_OPTIONS, CLI, "gateway", ...args, "--json"], {
      env: { ...process.env, NO_COLOR: "1" },
      stdio: ["ignore", "pipe", "ignore"],
    });
    this.#process = child;
    let text = "";
    for await (const line of createInterface({ input: child.stdout })) {
      text += line;
      if (line.startsWith("}")) break;
    }
    if (text === "") throw new ForkdError("DAEMON_FAILED", "The gateway did not start.");
    this.url = `http://${(JSON.parse(text) as { bind: string }).bind}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.#process;
    if (child && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
    }
    await rm(this.#dir, { recursive: true, force: true });
  }
}
