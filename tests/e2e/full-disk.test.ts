// A daemon on a full disk: sandboxes can be ended, and failed operations report the reason.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { rm, statfs, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { TestDaemon } from "../helpers/daemon.ts";
import { PYTHON_IMAGE } from "../helpers/vm.ts";
import { until } from "../helpers/until.ts";

const run = promisify(execFile);
const notRoot = process.getuid?.() === 0 ? false : "only root can mount a small file system";
const MIB = 1024 * 1024;

describe("a store on a full disk", { skip: notRoot }, () => {
  let daemon: TestDaemon;
  let ballast: string;
  const free = async (): Promise<number> => {
    const { bavail, bsize } = await statfs(daemon.home.root);
    return bavail * bsize;
  };
  /** Fills the disk, except for `leave` bytes */
  const fill = async (leave = 0): Promise<void> => {
    await rm(ballast, { force: true });
    const bytes = (await free()) - leave;
    // dd fails when the disk is full
    const filled = leave > 0 ? run("fallocate", ["-l", String(bytes), ballast]) : run("dd", ["if=/dev/zero", `of=${ballast}`, "bs=4096"]);
    await filled.catch((error: unknown) => assert.match(String(error), leave > 0 ? /^never$/ : /No space left/));
  };

  before(async () => {
    const machine = await prepareHome(resolveHome());
    daemon = await TestDaemon.make([]);
    await rm(daemon.home.cache, { recursive: true });
    await run("mount", ["-t", "tmpfs", "-o", "size=300M,mode=700", "tmpfs", daemon.home.root]);
    for (const part of ["images", "guestKernels", "cache"] as const) await symlink(machine[part], daemon.home[part]);
    ballast = join(daemon.home.root, "ballast");
    await daemon.up();
    await daemon.makePython();
  });
  after(async () => {
    try {
      await rm(ballast, { force: true });
      await daemon.controller.killSandboxes({ all: true });
      await daemon.down();
    } finally {
      await run("umount", ["--lazy", daemon.home.root]);
      await daemon[Symbol.asyncDispose]();
    }
  });

  it("allows sandboxes to end, by themselves and on request, and journals it when there is space", async () => {
    const { controller } = daemon;
    const made = await controller.spawnSandboxes("python", { n: 3 });
    const [dead, killed] = made;
    assert.ok(dead?.pid && killed);
    await fill();
    process.kill(dead.pid, "SIGKILL");
    await until(async () => (await controller.getSandbox(dead.id)).state === "ended");
    await controller.killSandbox(dead.id);
    await controller.killSandbox(killed.id);
    await assert.rejects(controller.killSandbox(killed.id), { code: "NOT_FOUND" });
    await controller.killSandboxes({ all: true });
    assert.deepEqual(await controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] }), []);
    await assert.rejects(controller.spawnSandboxes("python"), { code: "NO_SPACE" });
    await rm(ballast);
    const [later] = await controller.spawnSandboxes("python");
    assert.ok(later);
    await daemon.kill9();
    await daemon.up();
    assert.deepEqual(
      (await controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] })).map(({ id, state }) => [id, state]),
      [[later.id, "running"]],
    );
    await controller.killSandbox(later.id);
  });

  it("refuses a boot for lack of space, before and during the boot", async () => {
    const { controller } = daemon;
    const create = async (): Promise<unknown> => controller.createSnapshot("more", { image: PYTHON_IMAGE, memoryMib: 256 });
    await fill(16 * MIB);
    await assert.rejects(create(), { code: "NO_SPACE", status: 507, message: /Cannot boot a VM: .* 1[56] MiB free/ });
    await fill(48 * MIB);
    await assert.rejects(create(), { code: "NO_SPACE", status: 507, message: /the disk of FORKD_HOME is full/ });
    await rm(ballast);
    const tags = (await controller.listSnapshots()).map(({ tag, status }) => [tag, status]);
    assert.deepEqual(tags, [["python", "ready"]]);
  });

  it("can be stopped and started", async () => {
    await fill();
    await daemon.down();
    await rm(ballast);
    await daemon.up();
    assert.equal((await daemon.controller.listSnapshots()).length, 1);
  });
});
