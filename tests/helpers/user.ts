// A temporary unprivileged user with its own store; both are removed at the end.

import assert from "node:assert/strict";
import { execFile, type ExecFileException } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { ImageStore, prepareHome, resolveHome, Runtime } from "@forkd/runtime";
import { processIds } from "./host.ts";
import { patience } from "./patience.ts";
import { ensurePythonImage, PYTHON_IMAGE } from "./vm.ts";

import type { Home, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");

export class TestUser {
  readonly name: string;
  readonly folder: string;
  readonly home: Home;

  private constructor(name: string, folder: string) {
    this.name = name;
    this.folder = folder;
    this.home = resolveHome({ FORKD_HOME: `${folder}/store`, FORKD_RUN: `${folder}/run` });
  }

  /** Returns the user, or the reason why this process cannot add one */
  static async make(): Promise<TestUser | string> {
    if (process.getuid?.() !== 0) return "only root can add a user for this test";
    const name = `forkd-test-${randomBytes(3).toString("hex")}`;
    const folder = join(tmpdir(), name);
    await run("useradd", ["--create-home", "--home-dir", folder, "--user-group", "--shell", "/bin/sh", name]);
    const user = new TestUser(name, folder);
    try {
      const needed = [join(root, "forkd"), join(root, "node_modules/.bin/node"), join(root, "dist/bin/forkd-warden")];
      for (const file of needed) await user.as("test", ["-r", file, "-a", "-x", file]);
      return user;
    } catch {
      await user.remove();
      return `the user ${name} may not read ${root}`;
    }
  }

  /** Copies the guest kernels of a store and, unless disabled, the Python image */
  async fill(from: Home, opts: { images: boolean } = { images: true }): Promise<void> {
    await prepareHome(from);
    await ensurePythonImage(from);
    // Starting a runtime builds the guest kernel for the current agent, so that it is not downloaded
    await (await Runtime.start({ home: from })).close();
    await run("install", ["-d", "-m", "700", "-o", this.name, "-g", this.name, this.home.root, this.home.run]);
    await run("cp", ["-a", from.guestKernels, this.home.root]);
    if (opts.images) {
      const { id } = await new ImageStore(from).get(PYTHON_IMAGE);
      await mkdir(this.home.images, { mode: 0o700 });
      await run("cp", ["-a", "--reflink=auto", join(from.images, id.replace("sha256:", "")), this.home.images]);
      await new ImageStore(this.home).tag(PYTHON_IMAGE, id);
    }
    await run("chown", ["-R", `${this.name}:${this.name}`, this.home.root]);
  }

  /** Copies the snapshot: a hard link would change the owner of the original */
  async addSnapshot({ dir, manifest }: Snapshot): Promise<void> {
    const tags = join(this.home.snapshots, "tags");
    await mkdir(tags, { recursive: true, mode: 0o700 });
    await run("cp", ["-a", "--reflink=auto", dir, this.home.snapshots]);
    await writeFile(join(tags, manifest.tag), manifest.id, { mode: 0o600 });
    await run("chown", ["-R", `${this.name}:${this.name}`, this.home.snapshots]);
  }

  /** Standard output of a program that runs as this user */
  async as(program: string, args: readonly string[]): Promise<string> {
    const env = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: this.folder, FORKD_HOME: this.home.root, FORKD_RUN: this.home.run };
    const variables = Object.entries(env).map(([key, text]) => `${key}=${text}`);
    const identity = ["--reuid", this.name, "--regid", this.name, "--clear-groups", "--reset-env"];
    const { stdout } = await run("setpriv", [...identity, "env", ...variables, program, ...args], { timeout: patience(40), cwd: "/" });
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
    // a failed test may leave processes behind
    for (const pid of await this.processes()) process.kill(pid, "SIGKILL");
    await run("userdel", ["--remove", this.name]).catch((error: ExecFileException) => {
      // userdel exits with 12 if there is no mail spool
      if (error.code !== 12) throw error;
    });
    await assert.rejects(access(this.folder), { code: "ENOENT" });
  }
}
