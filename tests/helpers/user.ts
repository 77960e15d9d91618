// An ordinary user of this machine, with a store of its own; both go in the end.

import assert from "node:assert/strict";
import { execFile, type ExecFileException } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { prepareHome, resolveHome, Runtime } from "@forkd/daemon";
import { processIds } from "./host.ts";
import { ensurePythonImage } from "./vm.ts";

import type { Home } from "@forkd/daemon";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const WITHIN_MS = 240_000;

export class TestUser {
  readonly name: string;
  readonly folder: string;
  readonly home: Home;

  private constructor(name: string, folder: string) {
    this.name = name;
    this.folder = folder;
    this.home = resolveHome({ FORKD_HOME: `${folder}/store`, FORKD_RUN: `${folder}/run` });
  }

  /** The user, or why there can be none */
  static async make(): Promise<TestUser | string> {
    if (process.getuid?.() !== 0) return "only root can add a user for this test";
    const name = `forkd-test-${randomBytes(3).toString("hex")}`;
    await run("useradd", ["--create-home", "--user-group", "--shell", "/bin/sh", name]);
    const line = (await readFile("/etc/passwd", "utf8")).split("\n").find((entry) => entry.startsWith(`${name}:`));
    const user = new TestUser(name, line?.split(":")[5] ?? "");
    try {
      const needed = [join(root, "forkd"), join(root, "node_modules/.bin/node"), join(root, "dist/bin/forkd-warden")];
      for (const file of needed) await user.as("test", ["-r", file, "-a", "-x", file]);
      return user;
    } catch {
      await user.remove();
      return `the user ${name} may not read ${root}`;
    }
  }

  /** Gives it the guest kernels of a store, and its images unless they are to come some other way */
  async fill(from: Home, opts: { images: boolean } = { images: true }): Promise<void> {
    await prepareHome(from);
    await ensurePythonImage(from);
    // this makes the guest kernel of the present agent, so that it need not be fetched
    await (await Runtime.start({ home: from })).close();
    await run("install", ["-d", "-m", "700", "-o", this.name, "-g", this.name, this.home.root, this.home.run]);
    for (const part of [...(opts.images ? [from.images] : []), from.guestKernels]) await run("cp", ["-a", part, this.home.root]);
    await run("chown", ["-R", `${this.name}:${this.name}`, this.home.root]);
  }

  /** What a program prints that it runs */
  async as(program: string, args: readonly string[]): Promise<string> {
    const env = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: this.folder, FORKD_HOME: this.home.root, FORKD_RUN: this.home.run };
    const variables = Object.entries(env).map(([key, text]) => `${key}=${text}`);
    const identity = ["--reuid", this.name, "--regid", this.name, "--clear-groups", "--reset-env"];
    const { stdout } = await run("setpriv", [...identity, "env", ...variables, program, ...args], { timeout: WITHIN_MS, cwd: "/" });
    return stdout;
  }

  async processes(): Promise<number[]> {
    const uid = (await run("id", ["-u", this.name])).stdout.trim();
    const left = [];
    for (const pid of processIds()) {
      const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
      if (new RegExp(`^Uid:\\s+${uid}\\b`, "m").test(status) && !/^State:\s+Z/m.test(status)) left.push(pid);
    }
    return left;
  }

  async remove(): Promise<void> {
    // a test that failed may have left some
    for (const pid of await this.processes()) process.kill(pid, "SIGKILL");
    await run("userdel", ["--remove", this.name]).catch((error: ExecFileException) => {
      // it grumbles that there is no mail box
      if (error.code !== 12) throw error;
    });
    await assert.rejects(access(this.folder), { code: "ENOENT" });
  }
}
