// Host limits of single sandboxes: rejected where they cannot be applied, and applied by a real kernel. That kernel is
// a guest's, because the test host may have no cgroup v2.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { installation } from "@forkd/runtime";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { NODE_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { LimitOptions } from "forkd";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const PROGRAM = "tests/programs/limits-in-guest.ts";
const MIB = 1024 * 1024;

describe("limits that the host cannot apply", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("are refused before any change, with what is missing and how to get it", async () => {
    const { controller } = daemon;
    const [source] = await controller.spawnSandboxes("python", { memoryLimitMib: 256 });
    assert.ok(source);
    assert.deepEqual([source.memory_limit_mib, source.cpu_limit], [256, null], "a limit above the machine's memory always holds");
    const { sandbox_limits: possible } = await controller.status();
    const all: [LimitOptions, string][] = [
      [{ memoryLimitMib: 100 }, "memory_limit_mib"],
      [{ cpuLimit: 0.5 }, "cpu_limit"],
      [{ cpuWeight: 50 }, "cpu_weight"],
      [{ pidsLimit: 100 }, "pids_limit"],
      [{ ioLimitMbps: 10 }, "io_limit_mbps"],
    ];
    const refusable = all.filter(([, name]) => !possible.applicable.includes(name));
    // the test is in the same cgroup as its daemon, so the daemon cannot delegate controllers
    assert.equal(refusable.length, all.length, JSON.stringify(possible));
    assert.ok(possible.reason);
    for (const [limit, name] of refusable) {
      const refused = { code: "LIMIT_UNAVAILABLE", status: 422, message: new RegExp(`${name}: .+`), hint: /Delegate=yes/ };
      await assert.rejects(controller.spawnSandboxes("python", { n: 2, ...limit }), refused);
      await assert.rejects(controller.forkSandbox(source.id, limit), refused);
      await assert.rejects(controller.createWorkspace("work", "python", limit), refused);
    }
    assert.equal((await controller.getSandbox(source.id)).branch_count, 0, "the source was stopped");
    assert.equal((await controller.listSandboxes()).length, 1);
    const { code, stderr } = await daemon.cli(["fork", "python", "--cpu-limit", "0.5", "--pids-limit", "9"]);
    assert.equal(code, 1);
    assert.match(stderr, /cpu_limit, pids_limit.*\n.*Delegate=yes.*\[LIMIT_UNAVAILABLE\]/s);
    assert.match((await daemon.cli(["status"])).stdout, /limits +none for single sandboxes: /);
  });
});

describe("limits on a host with cgroup v2", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("limits", { spec: { ...NODE_WARM, memoryMiB: 768 } });
  });
  after(async () => vm.close());

  it("apply to a confined process from its start, are found again, and are removed with it", async () => {
    await using sandbox = await vm.fork();
    const copy = async (from: string, to: string): Promise<void> =>
      void (await sandbox.files.write(to, await readFile(from), { parents: true, mode: 0o755 }));
    for (const path of await programFiles("/usr/bin/mount")) await copy(path, `/tmp/mount/${path.split("/").at(-1)}`);
    await copy("/usr/bin/sleep", "/usr/bin/sleep");
    await copy(installation.warden, "/tmp/forkd-warden");
    for (const file of [PROGRAM, ...(await sources())]) await copy(join(root, file), `/tmp/${file}`);
    const loader = ["/lib64/ld-linux-x86-64.so.2", "--library-path", "/tmp/mount"];
    const mounted = await sandbox.exec([...loader, "/tmp/mount/mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]);
    assert.equal(mounted.code, 0, mounted.stderr.toString());
    const result = await sandbox.exec(["node", "--no-warnings", `/tmp/${PROGRAM}`, "/tmp/forkd-warden"], { timeoutMs: patience(40) });
    assert.equal(result.code, 0, result.stderr.toString());
    assert.deepEqual(JSON.parse(result.stdout.toString()), {
      strangers: "other processes (1, 2, 3) are in the control group /sys/fs/cgroup",
      applicable: { limits: ["memoryMiB", "cpus", "cpuWeight", "pids"], reason: "/tmp lies on no single disk" },
      limits: [String(64 * MIB), "50000 100000", "50", "20"],
      inGroup: true,
      daemonIn: "/unit/forkd-daemon",
      found: [true, String(64 * MIB)],
      removed: true,
      hungry: ["SIGKILL", true],
      swept: true,
    });
  });
});

/** Source files that the program imports, and their neighbours */
async function sources(): Promise<string[]> {
  const src = "packages/runtime/src";
  const folders = ["host", "warden", "util"].map((name) => join(src, name));
  const names = await Promise.all(folders.map(async (folder) => (await readdir(join(root, folder))).map((name) => join(folder, name))));
  return [join(src, "errors.ts"), ...names.flat()];
}

/** A program and its shared libraries */
async function programFiles(path: string): Promise<string[]> {
  const { stdout } = await run("ldd", [path]);
  return [path, ...[...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1] ?? "")];
}
