// An OCI registry (Debian's docker-registry) on loopback for benchmarks and tests, with its own store; removed at the end.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime";

const PROGRAM = "/usr/bin/docker-registry";
const READY_WITHIN_MS = 10_000;
const READY_POLL_MS = 20;
/** It cannot choose a port itself, and another program may take a free port before it listens */
const TRIES = 5;

export type RegistryOptions = {
  /** users that it accepts, in the format of htpasswd; without it, it needs no login */
  htpasswd?: string | undefined;
  /** headers of the request that finds out whether it is ready: the login, where it needs one */
  headers?: Record<string, string> | undefined;
  readyWithinMs?: number | undefined;
  signal?: AbortSignal | undefined;
};

export class OwnRegistry implements AsyncDisposable {
  readonly host: string;
  readonly #stop: () => Promise<void>;

  private constructor(host: string, stop: () => Promise<void>) {
    this.host = host;
    this.#stop = stop;
  }

  static async start(opts: RegistryOptions = {}): Promise<OwnRegistry> {
    const folder = await mkdtemp(join(tmpdir(), "forkd-registry-"));
    try {
      for (let tries = 1; ; tries++) {
        const started = await serve(folder, opts);
        if (typeof started !== "string")
          return new OwnRegistry(started.host, async () => {
            await started.stop();
            await rm(folder, { recursive: true, force: true });
          });
        if (tries === TRIES)
          throw new ForkdError("HOST_TOOL_MISSING", `Cannot start ${PROGRAM}: ${started}.`, { hint: "Install Debian's docker-registry." });
      }
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
  }
}

/** Its address when it answers, or the reason why it does not */
async function serve(
  folder: string,
  { htpasswd, headers = {}, readyWithinMs = READY_WITHIN_MS, signal }: RegistryOptions,
): Promise<{ host: string; stop: () => Promise<void> } | string> {
  const host = `127.0.0.1:${await freePort()}`;
  const config = join(folder, "config.yml");
  const storage = `storage:\n  filesystem:\n    rootdirectory: ${join(folder, "data")}\n`;
  const users = join(folder, "htpasswd");
  if (htpasswd !== undefined) await writeFile(users, htpasswd);
  const auth = htpasswd === undefined ? "" : `auth:\n  htpasswd:\n    realm: forkd\n    path: ${users}\n`;
  await writeFile(config, `version: 0.1\nlog:\n  level: error\n${storage}http:\n  addr: ${host}\n${auth}`);
  const child = spawn(PROGRAM, ["serve", config], { stdio: "ignore", env: { ...process.env, OTEL_TRACES_EXPORTER: "none" } });
  let ended: string | undefined;
  const exited = once(child, "exit").then(
    () => (ended = "it ended at its start"),
    (error: Error) => (ended = error.message),
  );
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await exited;
  };
  try {
    for (const deadline = Date.now() + readyWithinMs; !(await answers(host, headers)); await sleep(READY_POLL_MS, undefined, { signal })) {
      if (ended !== undefined) return ended;
      if (Date.now() > deadline) throw new ForkdError("HOST_TOOL_MISSING", `Cannot start ${PROGRAM}: it does not answer.`);
    }
    // another program that took the port would answer, too
    if (ended !== undefined) return ended;
    return { host, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function answers(host: string, headers: Record<string, string>): Promise<boolean> {
  try {
    const response = await fetch(`http://${host}/v2/`, { headers });
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
