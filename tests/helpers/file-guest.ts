// A sandbox whose files are tested through the daemon, and what a program inside it sees of them.

import assert from "node:assert/strict";
import { FileError, Sandbox } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { PYTHON_IMAGE } from "./vm.ts";

/** Processes that are the agent or one of its tools */
const COUNT_AGENTS = `
import os
def comm(pid):
    try:
        return open(f'/proc/{pid}/comm').read()
    except OSError:
        return None
sum(comm(pid) == comm(1) for pid in os.listdir('/proc') if pid.isdigit())`;

export class FileGuest implements AsyncDisposable {
  readonly daemon: TestDaemon;
  readonly sandbox: Sandbox;

  private constructor(daemon: TestDaemon, sandbox: Sandbox) {
    this.daemon = daemon;
    this.sandbox = sandbox;
  }

  static async start(): Promise<FileGuest> {
    const daemon = await TestDaemon.start();
    const warmUp = { kernels: [{ language: "python" as const, code: "import os" }] };
    await daemon.controller.createSnapshot("files", { image: PYTHON_IMAGE, memoryMib: 512, warmUp, timeoutMs: 180_000 });
    return new FileGuest(daemon, await Sandbox.create("files", { controller: daemon.controller }));
  }

  get files(): Sandbox["files"] {
    return this.sandbox.files;
  }

  /** What a shell command that must succeed prints */
  async sh(script: string, user?: string): Promise<string> {
    const result = await this.sandbox.exec(["sh", "-c", script], { timeoutSecs: 120, user });
    assert.equal(result.exit_code, 0, `${script}: ${result.stderr}`);
    return result.stdout.trim();
  }

  /** The value of an expression of the warm interpreter */
  async py(code: string): Promise<unknown> {
    const { value, error, traceback } = await this.sandbox.controller.evalCode(this.sandbox.id, code, { timeoutSecs: 120 });
    assert.equal(error, null, traceback ?? "");
    return value;
  }

  /** How many tools of the agent run */
  async tools(): Promise<number> {
    return Number(await this.py(COUNT_AGENTS)) - 1;
  }

  /** What half-made things are called, wherever they are */
  async halfMade(): Promise<string> {
    return this.sh("find / -xdev -name '.forkd-*' 2>/dev/null; find /tmp /dev/shm -name '.forkd-*'");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
  }
}

/** Expects the guest to refuse with this code and errno */
export async function refuses(work: Promise<unknown>, code: string, errno: string): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof FileError, String(error));
    assert.deepEqual([error.code, error.errno], [code, errno], error.message);
    return true;
  });
}
