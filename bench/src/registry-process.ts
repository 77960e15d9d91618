// An OCI registry of the benchmark's own on loopback, with a store of its own; nothing of it stays.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/daemon";

const PROGRAM = "/usr/bin/docker-registry";
const READY_WITHIN_MS = 10_000;
const READY_POLL_MS = 20;

export class OwnRegistry implements AsyncDisposable {
  readonly host: string;
  readonly #stop: () => Promise<void>;

  private constructor(host: string, stop: () => Promise<void>) {
    this.host = host;
    this.#stop = stop;
  }

  static async start(signal: AbortSignal): Promise<OwnRegistry> {
    const dir = await mkdtemp(join(tmpdir(), "forkd-bench-registry-"));
    const host = `127.0.0.1:${await freePort()}`;
    const config = join(dir, "config.yml");
    const storage = `storage:\n  filesystem:\n    rootdirectory: ${join(dir, "data")}\n`;
    await writeFile(config, `version: 0.1\nlog:\n  level: error\n${storage}http:\n  addr: ${host}\n`);
    const child = spawn(PROGRAM, ["serve", config], { stdio: "ignore", env: { ...process.env, OTEL_TRACES_EXPORTER: "none" } });
    let failure: Error | undefined;
    child.once("error", (error) => (failure = error));
    const exited = once(child, "close").catch((error: Error) => (failure = error));
    const registry = new OwnRegistry(host, async () => {
      child.kill("SIGTERM");
      await exited;
      await rm(dir, { recursive: true, force: true });
    });
    try {
      for (const deadline = Date.now() + READY_WITHIN_MS; !(await answers(host)); await sleep(READY_POLL_MS, undefined, { signal }))
        if (failure || Date.now() > deadline)
          throw new ForkdError("HOST_TOOL_MISSING", `Cannot start ${PROGRAM}: ${failure?.message ?? "it does not answer"}.`, {
            hint: "Install Debian's docker-registry.",
          });
      return registry;
    } catch (error) {
      await registry[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
  }
}

async function answers(host: string): Promise<boolean> {
  try {
    const response = await fetch(`http://${host}/v2/`);
    await response.body?.cancel();
    return response.ok;
  } catch (error) {
    if (error instanceof TypeError) return false;
    throw error;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
