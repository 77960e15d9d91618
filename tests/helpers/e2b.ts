// A daemon configured for E2B clients: address, API key and the default template.

import assert from "node:assert/strict";
import { TestDaemon } from "./daemon.ts";
import { patience } from "./patience.ts";
import { warmSnapshot } from "./shared-stores.ts";
import { PYTHON_IMAGE } from "./vm.ts";

const LONG_MS = 10_000;

/** Timeouts of test sandboxes: longer than a test file runs, and long enough for a slow machine */
export const PATIENT = { timeoutMs: patience(100), requestTimeoutMs: patience() };

export class E2bDaemon implements AsyncDisposable {
  readonly daemon: TestDaemon;
  /** API key of scope admin */
  readonly key: string;

  private constructor(daemon: TestDaemon, key: string) {
    this.daemon = daemon;
    this.key = key;
  }

  static async start(makeTemplate = makeBase): Promise<E2bDaemon> {
    const daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    try {
      await makeTemplate(daemon);
      const { stdout } = await daemon.cli(["token", "create", "e2b", "--scope", "operator", "--e2b"]);
      assert.match(stdout, /^e2b_[0-9a-f]{64}\n$/);
      return new E2bDaemon(daemon, stdout.trim());
    } catch (error) {
      await daemon[Symbol.asyncDispose]();
      throw error;
    }
  }

  get url(): string {
    return `http://${this.daemon.bind}`;
  }

  /** Environment variables that an E2B SDK reads */
  get env(): Record<string, string> {
    return { E2B_API_KEY: this.key, E2B_API_URL: this.url, E2B_SANDBOX_URL: this.url };
  }

  /** Kills the daemon and starts it again at the same address */
  async restart(): Promise<void> {
    const bind = this.daemon.bind ?? "";
    await this.daemon.kill9();
    await this.daemon.up(["--bind", bind]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
  }
}

/** Makes the template `base` from the Python image, so that the daemon does not download one */
async function makeBase(daemon: TestDaemon): Promise<void> {
  const warmUp = {
    exec: [
      ["useradd", "--create-home", "--shell", "/bin/bash", "user"],
      ["/bin/bash", "-l", "-c", "true"],
    ],
  };
  await warmSnapshot(daemon.home, "base", { image: PYTHON_IMAGE, memoryMiB: 256, warmUp });
}

/** Unreferences the timers that the SDK leaves running for a minute after a failed call: they would delay the exit */
export function forgetClocks(): void {
  const real = globalThis.setTimeout;
  const forgetful = (...args: Parameters<typeof real>): NodeJS.Timeout => {
    const timer = real(...args);
    return (args[1] ?? 0) < LONG_MS ? timer : timer.unref();
  };
  globalThis.setTimeout = Object.assign(forgetful, real);
}
