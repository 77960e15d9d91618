// A store on a small tmpfs, for tests of a full disk.

import { execFile } from "node:child_process";
import { mkdtemp, rm, statfs, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";

import type { Home, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);
const MIB = 1024 * 1024;

export class SmallHome implements AsyncDisposable {
  readonly home: Home;
  readonly #dir: string;

  private constructor(dir: string, home: Home) {
    this.#dir = dir;
    this.home = home;
  }

  /** Copies images, guest kernels and one base snapshot from another home, and leaves so much space */
  static async make(from: Home, snapshot: Snapshot, spareMiB: number): Promise<SmallHome> {
    const dir = await mkdtemp(join(tmpdir(), "forkd-test-small-"));
    await run("mount", ["-t", "tmpfs", "-o", "mode=700", "tmpfs", dir]);
    const small = new SmallHome(dir, resolveHome({ ...process.env, FORKD_HOME: dir }));
    try {
      const { home } = small;
      await prepareHome(home);
      const image = snapshot.manifest.imageId.replace("sha256:", "");
      await run("mkdir", ["-p", join(home.snapshots, "tags")]);
      await run("cp", ["-a", join(from.images, image), home.images]);
      await run("cp", ["-a", `${from.guestKernels}/.`, home.guestKernels]);
      // Copy without holes: on a full tmpfs, reading a hole ends the reader with SIGBUS
      await run("cp", ["-a", "--sparse=never", snapshot.dir, home.snapshots]);
      await writeFile(join(home.snapshots, "tags", snapshot.manifest.tag), snapshot.manifest.id);
      // guest kernels of other versions may be in the store, so the size is known only now
      const { blocks, bfree, bsize } = await statfs(dir);
      await run("mount", ["-o", `remount,size=${(blocks - bfree) * bsize + spareMiB * MIB}`, dir]);
      return small;
    } catch (error) {
      await small[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Fills the file system up to `leaveBytes` and returns a function that frees the space */
  async fill(leaveBytes: number): Promise<() => Promise<void>> {
    const { bavail, bsize } = await statfs(this.#dir);
    const file = join(this.#dir, "ballast");
    await run("fallocate", ["-l", String(bavail * bsize - leaveBytes), file]);
    return async () => rm(file);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await run("umount", [this.#dir]);
    await rm(this.#dir, { recursive: true });
  }
}
