// A daemon killed with SIGKILL: no acknowledged change is lost.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { Sandbox, type SandboxInfo } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { cmdlineOf, isRunning, waitUntilGone } from "../helpers/host.ts";
import { until } from "../helpers/until.ts";

const YAMA = "/proc/sys/kernel/yama/ptrace_scope";

describe("after the daemon was killed", () => {
  let daemon: TestDaemon;
  const connect = async (id: string): Promise<Sandbox> => Sandbox.connect(id, { controller: daemon.controller });

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("every sandbox exists, answers with its state, and can be branched and ended", async () => {
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
    assert.deepEqual(again.map(withoutMeasured), before.map(withoutMeasured));
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
    assert.deepEqual(daemon.vmms(), []);
    await daemon.controller.deleteSnapshot("after-crash");
    // the ephemeral snapshots were removed with their last sandboxes
    assert.deepEqual(
      (await daemon.controller.listSnapshots()).map(({ tag }) => tag),
      ["python"],
    );
  });

  it("the warden, which reads VM memory, is still the VMs' parent", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    await daemon.kill9();
    await daemon.up();
    assert.match(cmdlineOf(parentOf(info.pid)), /forkd-warden/);
    await daemon.controller.killSandboxes({ all: true });
  });

  it("a branch also works where only ancestors may access a process", { skip: yamaSkip() }, async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info);
    try {
      await daemon.kill9();
      await daemon.up();
      const source = await connect(info.id);
      await source.eval("kept = 'yama'");
      const [tip] = await source.fork(1);
      assert.equal((await tip?.eval("kept"))?.value, "yama");
    } finally {
      await daemon.controller.killSandboxes({ all: true });
    }
  });

  it("unacknowledged objects are removed: incomplete snapshots, unknown VMs, staging folders", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info);
    const boot = daemon.controller.createSnapshot("half", { image: "python-numpy", memoryMib: 256 });
    boot.catch(() => undefined); // the daemon is killed
    await until(() => daemon.vmms().length === 2);
    await daemon.kill9();
    await assert.rejects(boot);
    await daemon.up();
    await assert.rejects(daemon.controller.getSnapshot("half"), { code: "NOT_FOUND" });
    assert.equal(daemon.vmms().length, 1);
    await daemon.controller.killSandbox(info.id);
  });

  it("a VM that ended meanwhile is marked lost, with the reason", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    await daemon.kill9();
    process.kill(info.pid, "SIGKILL");
    assert.deepEqual(await waitUntilGone([info.pid]), []);
    await daemon.up();
    const lost = await daemon.controller.getSandbox(info.id);
    assert.equal(lost.state, "lost");
    assert.match(lost.reason ?? "", /VMM ended/);
    await assert.rejects(daemon.controller.evalCode(info.id, "1"), { code: "SANDBOX_LOST", status: 410 });
    await daemon.controller.killSandbox(info.id);
    await assert.rejects(daemon.controller.getSandbox(info.id), { code: "NOT_FOUND" });
  });

  it("a guest that powered off meanwhile is marked lost, and its VMM is ended", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    const off = "(until test -e /tmp/go; do sleep 0.1; done; sleep 3; echo o > /proc/sysrq-trigger) >/dev/null 2>&1 &";
    await daemon.controller.execCommand(info.id, ["sh", "-c", off]);
    await daemon.controller.execCommand(info.id, ["touch", "/tmp/go"]);
    await daemon.kill9();
    // its guest ends in this time
    await new Promise((resolve) => setTimeout(resolve, 10_000));
    await daemon.up();
    await until(async () => (await daemon.controller.getSandbox(info.id)).state === "lost");
    assert.match((await daemon.controller.getSandbox(info.id)).reason ?? "", /its guest powered off or restarted/);
    assert.deepEqual(await waitUntilGone([info.pid]), []);
    await daemon.controller.killSandbox(info.id);
  });

  it("a killed warden ends its VMs, the daemon reports it and continues", async () => {
    const [info] = await daemon.controller.spawnSandboxes("python");
    assert.ok(info?.pid);
    const [warden] = daemon.processes().filter((pid) => cmdlineOf(pid).includes("forkd-warden"));
    assert.ok(warden);
    process.kill(warden, "SIGKILL");
    assert.deepEqual(await waitUntilGone([warden, info.pid]), []);
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

  it("a saved state exists: that of the workspace being suspended is the old or the new one", async () => {
    const { controller } = daemon;
    await controller.createWorkspace("desk", "python");
    const live = async (): Promise<string> => (await controller.getWorkspace("desk")).live_sandbox_id ?? "";
    await controller.evalCode(await live(), "step = 1");
    for (let step = 1; step <= 4; step++) {
      const suspending = controller.suspendWorkspace("desk").then(
        () => true,
        () => false,
      );
      // every second time, kill the daemon in the middle
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

  it("VMs of another store in the same run folder are not touched", async () => {
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

/** Without the measurements that a daemon does not pass on to its successor */
function withoutMeasured({ certificate, ...info }: SandboxInfo): object {
  const { clock_drift_ppm: _drift, clock_measured: _where, ...kept } = certificate;
  return { ...info, certificate: kept, last_active_unix: 0 };
}

async function settled(promise: Promise<unknown>): Promise<boolean> {
  return Promise.race([promise.then(() => true), new Promise<boolean>((done) => void setImmediate(() => done(false)))]);
}

function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}

function yamaSkip(): string | false {
  try {
    // the setting applies to the whole machine, so the test must not change it
    return Number(readFileSync(YAMA, "utf8")) > 0 ? false : `any process of the user may do so here: ${YAMA} is 0`;
  } catch {
    return "this kernel has no yama";
  }
}
