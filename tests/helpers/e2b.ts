// A daemon as clients of E2B see it: an address, a key, and the template that they ask for by default.

import assert from "node:assert/strict";
import { PYTHON_IMAGE } from "./vm.ts";
import { TestDaemon } from "./daemon.ts";

const LONG_MS = 10_000;

export class E2bDaemon implements AsyncDisposable {
  readonly daemon: TestDaemon;
  /** of scope admin */
  readonly key: string;

  private constructor(daemon: TestDaemon, key: string) {
    this.daemon = daemon;
    this.key = key;
  }

  static async start(makeTemplate = makeBase): Promise<E2bDaemon> {
    const daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    try {
      await makeTemplate(daemon);
      const { stdout } = await daemon.cli(["token", "create", "e2b", "--scope", "admin", "--e2b"]);
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

  /** All that an SDK has to be told */
  get env(): Record<string, string> {
    return { E2B_API_KEY: this.key, E2B_API_URL: this.url, E2B_SANDBOX_URL: this.url };
  }

  /** Without a warning, and back at the same address */
  async restart(): Promise<void> {
    const bind = this.daemon.bind ?? "";
    await this.daemon.kill9();
    await this.daemon.up(["--bind", bind]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
  }
}

/** Under the name of the template that would otherwise be built: nothing has to be downloaded */
async function makeBase(daemon: TestDaemon): Promise<void> {
  const warmUp = {
    exec: [
      ["useradd", "--create-home", "--shell", "/bin/bash", "user"],
      ["/bin/bash", "-l", "-c", "true"],
    ],
  };
  await daemon.controller.createSnapshot("base", { image: PYTHON_IMAGE, memoryMib: 256, warmUp, timeoutMs: 180_000 });
}

/** The SDK leaves the clocks of calls that failed running for a minute: no test waits for them */
export function forgetClocks(): void {
  const real = globalThis.setTimeout;
  const forgetful = (...args: Parameters<typeof real>): NodeJS.Timeout => {
    const timer = real(...args);
    return (args[1] ?? 0) < LONG_MS ? timer : timer.unref();
  };
  globalThis.setTimeout = Object.assign(forgetful, real);
}
