// A sandbox for tests of file operations, with access to its files from inside the guest.

import assert from "node:assert/strict";
import { FileError, Sandbox } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { patience } from "./patience.ts";
import { warmSnapshot } from "./shared-stores.ts";
import { PYTHON_IMAGE } from "./vm.ts";

/** Counts the processes of the agent and its tools */
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
    await warmSnapshot(daemon.home, "files", { image: PYTHON_IMAGE, memoryMiB: 512, warmUp });
    return new FileGuest(daemon, await Sandbox.create("files", { controller: daemon.controller }));
  }

  get files(): Sandbox["files"] {
    return this.sandbox.files;
  }

  /** Standard output of a shell command that must succeed */
  async sh(script: string, user?: string): Promise<string> {
    const result = await this.sandbox.exec(["sh", "-c", script], { timeoutSecs: patience() / 1000, user });
    assert.equal(result.exit_code, 0, `${script}: ${result.stderr}`);
    return result.stdout.trim();
  }

  /** Value of an expression in the warm interpreter */
  async py(code: string): Promise<unknown> {
    const { value, error, traceback } = await this.sandbox.controller.evalCode(this.sandbox.id, code, { timeoutSecs: patience() / 1000 });
    assert.equal(error, null, traceback ?? "");
    return value;
  }

  /** Number of running agent tools */
  async tools(): Promise<number> {
    return Number(await this.py(COUNT_AGENTS)) - 1;
  }

  /** Paths of all temporary files of the agent in the guest */
  async halfMade(): Promise<string> {
    return this.sh("find / -xdev -name '.forkd-*' 2>/dev/null; find /tmp /dev/shm -name '.forkd-*'");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
  }
}

/** Expects the guest to reject with this code and errno */
export async function refuses(work: Promise<unknown>, code: string, errno: string): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof FileError, String(error));
    assert.deepEqual([error.code, error.errno], [code, errno], error.message);
    return true;
  });
}
