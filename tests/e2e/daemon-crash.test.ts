// A daemon that is killed loses nothing that it acknowledged.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { cmdlineOf, isRunning, waitUntilGone } from "../helpers/host.ts";

const YAMA = "/proc/sys/kernel/yama/ptrace_scope";

describe("after the daemon was killed", () => {
  let daemon: TestDaemon;
  const connect = async (id: string): Promise<Sandbox> => Sandbox.connect(id, { controller: daemon.controller });

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("every sandbox is there, answers with its state, can be branched and ended", async () => {
    const [plain, paused] = await daemon.controller.spawnSandboxes("python", { n: 2, metadata: { who: "crash" }, env: { MODE: "test" } });
    assert.ok(plain && paused);
    await daemon.controller.updateSandbox(plain.id, { name: "survivor" });
    const source = await connect(plain.id);
    await source.eval("kept = 41");
    await source.exec(["sh", "-c", "echo on disk > /tmp/kept"]);
    const [tip] = await source.fork(1);
    assert.ok(tip);
    await daemon.controller.pauseSandbox(paused.id);
    const before = await daemon.controller.listSandboxes();

    await daemon.kill9();
    assert.ok(
      before.every(({ pid }) => pid !== null && isRunning(pid)),
      "VMs ended with the daemon",
    );
    await daemon.up();

    const again = await daemon.controller.listSandboxes();
    assert.deepEqual(
      again.map((info) => ({ ...info, last_active_unix: 0 })),
      before.map((info) => ({ ...info, last_active_unix: 0 })),
    );
    const survivor = await connect("survivor");
    assert.equal((await survivor.eval("kept + 1")).value, 42);
    assert.equal((await survivor.exec(["cat", "/tmp/kept"])).stdout, "on disk\n");
    assert.equal((await survivor.exec(["sh", "-c", "echo $MODE"])).stdout, "test\n");
    assert.equal((await tip.eval("kept")).value, 41);
    await assert.rejects((await connect(paused.id)).eval("1"), { code: "SANDBOX_PAUSED" });
    await daemon.controller.resumeSandbox(paused.id);
    assert.equal((await (await connect(paused.id)).eval("1 + 1")).value, 2);

    const [branch] = await survivor.fork(1);
    assert.equal((await branch?.eval("kept"))?.value, 41);
    const branchOfBranch = await tip.branch("after-crash");
    assert.equal(branchOfBranch.status, "ready");

    await daemon.controller.killSandboxes({ all: true });
    assert.deepEqual(await daemon.controller.listSandboxes(), []);
    assert.deepEqual(
      daemon.processes().filter((pid) => cmdlineOf(pid).includes("qemu-system")),
      [],
    );
    await daemon.controller.deleteSnapshot("after-crash");
    // the anonymous snapshots went with their last sandboxes
    assert.deepEqual(
      (await daemon.controller.listSnapshots()).map(({ tag }) => tag),
      ["python"],
    );
  });

  it("the process that reads a VM's memory is still its parent", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    await daemon.kill9();
    await daemon.up();
    assert.match(cmdlineOf(parentOf(info.pid)), /forkd-warden/);
    await daemon.controller.killSandboxes({ all: true });
  });

  it("a branch works also where only ancestors may look into a process", { skip: yamaSkip() }, async () => {
    const scope = readFileSync(YAMA, "utf8");
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info);
    try {
      writeFileSync(YAMA, "1");
      await daemon.kill9();
      await daemon.up();
      const source = await connect(info.id);
      await source.eval("kept = 'yama'");
      const [tip] = await source.fork(1);
      assert.equal((await tip?.eval("kept"))?.value, "yama");
    } finally {
      writeFileSync(YAMA, scope);
      await daemon.controller.killSandboxes({ all: true });
    }
  });

  it("what was never acknowledged is gone: half-made snapshots, VMs nobody knows, staging folders", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info);
    const boot = daemon.controller.createSnapshot("half", { image: "python-numpy", memoryMib: 256 });
    boot.catch(() => undefined); // it ends with the daemon
    while (daemon.processes().filter((pid) => cmdlineOf(pid).includes("qemu-system")).length < 2)
      await new Promise((done) => setTimeout(done, 5));
    await daemon.kill9();
    await assert.rejects(boot);
    await daemon.up();
    await assert.rejects(daemon.controller.getSnapshot("half"), { code: "NOT_FOUND" });
    assert.equal(daemon.processes().filter((pid) => cmdlineOf(pid).includes("qemu-system")).length, 1);
    await daemon.controller.killSandbox(info.id);
  });

  it("a VM that ended meanwhile is marked lost, with the reason", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    await daemon.kill9();
    process.kill(info.pid, "SIGKILL");
    assert.deepEqual(await waitUntilGone([info.pid], 10_000), []);
    await daemon.up();
    const lost = await daemon.controller.getSandbox(info.id);
    assert.equal(lost.state, "lost");
    assert.match(lost.reason ?? "", /VMM ended/);
    await assert.rejects(daemon.controller.evalCode(info.id, "1"), { code: "SANDBOX_LOST", status: 410 });
    await daemon.controller.killSandbox(info.id);
    await assert.rejects(daemon.controller.getSandbox(info.id), { code: "NOT_FOUND" });
  });

  it("a warden that is killed takes its VMs along, is told, and the daemon goes on", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    const [warden] = daemon.processes().filter((pid) => cmdlineOf(pid).includes("forkd-warden"));
    assert.ok(warden);
    process.kill(warden, "SIGKILL");
    assert.deepEqual(await waitUntilGone([warden, info.pid], 10_000), []);
    for await (const event of daemon.controller.events({ since: 0, types: ["sandbox.lost"], sandbox: info.id })) {
      assert.equal(event.sandbox, info.id);
      break;
    }
    assert.equal((await daemon.controller.getSandbox(info.id)).state, "lost");
    const [next] = await daemon.controller.spawnSandboxes("python");
    assert.ok(next);
    assert.equal((await daemon.controller.evalCode(next.id, "6 * 7")).value, 42);
    await daemon.controller.killSandboxes({ all: true });
  });

  it("a saved state is there: of the workspace that was being suspended, the old one or the new one", async () => {
    const { controller } = daemon;
    await controller.createWorkspace("desk", "python");
    const live = async (): Promise<string> => (await controller.getWorkspace("desk")).live_sandbox_id ?? "";
    await controller.evalCode(await live(), "step = 1");
    for (let step = 1; step <= 4; step++) {
      const suspending = controller.suspendWorkspace("desk").then(
        () => true,
        () => false,
      );
      // every other time it is cut off somewhere in the middle
      if (step % 2 === 0) {
        while ((await controller.listSnapshots({ status: "writing" }).catch(() => [])).length === 0 && !(await settled(suspending)))
          continue;
        await daemon.kill9();
        await daemon.up();
      }
      await suspending;
      const desk = await controller.getWorkspace("desk");
      assert.match(desk.status, /running|suspended/);
      if (desk.status === "suspended") await controller.resumeWorkspace("desk");
      assert.equal((await controller.evalCode(await live(), "step")).value, step);
      await controller.evalCode(await live(), "step += 1");
    }
    await controller.deleteWorkspace("desk");
    assert.deepEqual(
      (await controller.listSnapshots()).map(({ tag }) => tag),
      ["python"],
    );
  });

  it("VMs of another store in the same run folder are left alone", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    await daemon.kill9();
    await using other = await TestDaemon.make();
    other.env["FORKD_RUN"] = daemon.home.run;
    await assert.rejects(other.up(), { code: "DAEMON_RUNNING" });
    assert.ok(isRunning(info.pid));
    await daemon.up();
    await assert.rejects(other.up(), { code: "DAEMON_RUNNING" });
    assert.equal((await daemon.controller.evalCode(info.id, "6 * 7")).value, 42);
    await daemon.controller.killSandboxes({ all: true });
  });

  it("a second daemon of the same store is refused", async () => {
    const second = await daemon.cli(["up", "--bind", "none"]);
    assert.equal(second.code, 0, second.stderr);
    assert.match(second.stdout + second.stderr, /already/i);
  });
});

async function settled(promise: Promise<unknown>): Promise<boolean> {
  return Promise.race([promise.then(() => true), new Promise<boolean>((done) => void setImmediate(() => done(false)))]);
}

function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}

function yamaSkip(): string | false {
  if (process.getuid?.() !== 0) return "only root may change ptrace_scope";
  try {
    readFileSync(YAMA);
    return false;
  } catch {
    return "this kernel has no yama";
  }
}
