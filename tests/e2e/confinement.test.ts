// VMMs in namespaces of their own: what somebody who breaks into one can do, and that sandboxes are none the worse for it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { access } from "node:fs/promises";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { resolveHome } from "@forkd/daemon";
import { TestDaemon } from "../helpers/daemon.ts";
import { until } from "../helpers/until.ts";
import { TestUser } from "../helpers/user.ts";

import type { SandboxInfo } from "forkd";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const NODE = join(root, "node_modules/.bin/node");
const BREAK_IN = ["--disable-warning=ExperimentalWarning", join(root, "tests/programs/break-in.ts")];
const NAMESPACES = ["user", "mnt", "pid", "ipc", "uts", "net"];
/** 0 to 2, the two channels and the device state */
const DESCRIPTORS = [0, 1, 2, 3, 4, 5];

type Attempt = { what: string; outcome: string; who: "user" | "root" | "nobody" };
type Result = { exit: { code: number | null; signal: string | null }; log: string };

function attemptsIn({ exit, log }: Result): { attempts: Attempt[]; descriptors: number[] } {
  assert.deepEqual(exit, { code: 0, signal: null }, log);
  const lines = log.trim().split("\n");
  const { descriptors } = JSON.parse(lines.pop() ?? "") as { descriptors: number[] };
  return { attempts: lines.map((line) => JSON.parse(line) as Attempt), descriptors };
}

/** Everything is tried free as well: an attempt that fails in any case would prove nothing */
async function assertContained(breakIn: (mode: string) => Promise<string>, user: "root" | "user"): Promise<void> {
  const free = attemptsIn(JSON.parse(await breakIn("free")) as Result);
  const able = free.attempts.filter(({ who }) => who === "user" || who === user);
  assert.deepEqual(
    able.filter(({ outcome }) => outcome !== "done"),
    [],
    "without confinement these work",
  );
  const confined = attemptsIn(JSON.parse(await breakIn("confined")) as Result);
  assert.ok(confined.attempts.length > able.length);
  for (const { what, outcome } of confined.attempts) {
    assert.equal(outcome === "done", what.startsWith("own: "), `${what}: ${outcome}`);
    // else it failed for another reason than that it is forbidden
    if (what.startsWith("calls ")) assert.equal(outcome, "EPERM", what);
  }
  assert.deepEqual(confined.descriptors, DESCRIPTORS);
}

function namespacesOf(pid: number): string[] {
  return NAMESPACES.map((name) => readlinkSync(`/proc/${pid}/ns/${name}`));
}

function assertConfined(sandboxes: readonly SandboxInfo[]): void {
  const all = sandboxes.flatMap(({ pid, confinement }) => {
    assert.equal(confinement, "namespaces");
    return namespacesOf(pid ?? 0);
  });
  assert.equal(new Set([...namespacesOf(process.pid), ...all]).size, NAMESPACES.length * (sandboxes.length + 1));
  for (const { pid } of sandboxes) {
    const devices = readFileSync(`/proc/${pid}/net/dev`, "utf8").trim().split("\n").slice(2);
    assert.match(devices.join(), /^ *lo:(?: +0)+$/, "it has a network");
  }
}

describe("a VMM that was broken into", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("reaches nothing but its own folder and its images", async (t) => {
    if (!(await isThere("/usr/bin/python3"))) return t.skip("/usr/bin/python3 is not installed");
    const [victim] = await daemon.controller.spawnSandboxes("python");
    assert.ok(victim);
    await daemon.controller.branchSandbox(victim.id, { tag: "other" });
    const breakIn = async (mode: string): Promise<string> =>
      (await run(NODE, [...BREAK_IN, mode, "python", victim.id, "other"], { env: daemon.env })).stdout;
    await assertContained(breakIn, process.getuid?.() === 0 ? "root" : "user");
    assert.equal((await daemon.controller.evalCode(victim.id, "1 + 1")).value, 2, "the victim is as it was");
    await daemon.controller.killSandbox(victim.id);
    await daemon.controller.deleteSnapshot("other");
  });

  it("is what every sandbox's VMM could be: forks, those of the pool, branches, after a restart of the daemon", async () => {
    const { controller } = daemon;
    const forks = await controller.spawnSandboxes("python", { n: 2 });
    assertConfined(forks);
    const [first] = forks;
    assert.ok(first);
    await controller.evalCode(first.id, "kept = 20");
    await controller.branchSandbox(first.id, { tag: "once" });
    const [child] = await controller.spawnSandboxes("once");
    assert.ok(child);
    await controller.evalCode(child.id, "kept += 1");
    const { sandboxes } = await controller.forkSandbox(child.id, { n: 2 });
    await controller.updateSnapshot("python", { pool: 1 });
    const pooled = await controller.spawnSandboxes("python");
    await controller.updateSnapshot("python", { pool: 0 });
    const all = [...forks, child, ...sandboxes, ...pooled];
    assertConfined(all);

    await daemon.kill9();
    await daemon.up();
    const adopted = await Promise.all(all.map(async ({ id }) => controller.getSandbox(id)));
    assertConfined(adopted);
    assert.deepEqual(
      adopted.map(({ pid }) => pid),
      all.map(({ pid }) => pid),
    );
    for (const { id } of sandboxes) assert.equal((await controller.evalCode(id, "kept")).value, 21);
    await controller.branchSandbox(child.id, { tag: "later" });
    const [grandchild] = await controller.spawnSandboxes("later");
    assert.ok(grandchild);
    assert.equal((await controller.evalCode(grandchild.id, "kept")).value, 21);
    assertConfined([grandchild]);
    await controller.killSandboxes({ all: true });
    for (const { pid } of [...all, grandchild]) await until(async () => !(await isThere(`/proc/${pid}`)));
    for (const tag of ["later", "once"]) await controller.deleteSnapshot(tag, { force: true });
  });

  it("and its sandbox say so", async () => {
    const status = await daemon.controller.status();
    assert.deepEqual([status.confinement, status.confinement_policy, status.confinement_reason], ["namespaces", "preferred", null]);
    const { stdout } = await daemon.cli(["doctor", "--json"]);
    assert.equal((JSON.parse(stdout) as { confinement: string }).confinement, "namespaces");
  });
});

describe("a VMM of an ordinary user that was broken into", () => {
  let user: TestUser | undefined;
  let obstacle = "";
  before(async () => {
    const made = await TestUser.make();
    if (typeof made === "string") obstacle = made;
    else user = made;
    await user?.fill(resolveHome());
  });
  after(async () => user?.remove());

  it("reaches nothing but its own folder and its images", async (t) => {
    if (!user) return t.skip(obstacle);
    if (!(await isThere("/usr/bin/python3"))) return t.skip("/usr/bin/python3 is not installed");
    const me = user;
    const forkd = async (...args: string[]): Promise<string> => me.as(join(root, "forkd"), args);
    await forkd("snapshot", "create", "python", "--image", "python-numpy", "--memory-mib", "256", "-c", "1");
    const [victim] = JSON.parse(await forkd("fork", "python", "--json")) as SandboxInfo[];
    assert.ok(victim);
    assertConfined([victim]);
    await forkd("branch", victim.id, "--tag", "other");
    try {
      await assertContained(async (mode) => me.as(NODE, [...BREAK_IN, mode, "python", victim.id, "other"]), "user");
    } finally {
      await forkd("down", "--kill-sandboxes");
    }
    assert.deepEqual(await me.processes(), []);
  });
});

describe("a host that does not let VMMs be confined", () => {
  /** A user namespace of the test's own in which no other can be made */
  const FORBIDDING = ["unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"];
  let daemon: TestDaemon | undefined;
  let obstacle = "";
  before(async () => {
    try {
      await run(FORBIDDING[0] ?? "", [...FORBIDDING.slice(1), "true"]);
      daemon = await TestDaemon.make();
      daemon.prefix = FORBIDDING;
    } catch (error) {
      obstacle = `no user namespace can be made: ${String(error)}`;
    }
  });
  after(async () => daemon?.[Symbol.asyncDispose]());

  it("runs them without, and says so, where confinement is preferred", async (t) => {
    if (!daemon) return t.skip(obstacle);
    await daemon.up();
    const { controller } = daemon;
    const status = await controller.status();
    assert.equal(status.confinement, "none");
    assert.match(status.confinement_reason ?? "", /a limit of namespaces is reached/);
    await daemon.makePython();
    const [sandbox] = await controller.spawnSandboxes("python");
    assert.ok(sandbox?.pid);
    assert.equal(sandbox.confinement, "none");
    assert.equal((await controller.evalCode(sandbox.id, "1 + 1")).value, 2);
    assert.deepEqual(namespacesOf(sandbox.pid).slice(1), namespacesOf(process.pid).slice(1));
    const { stdout } = await daemon.cli(["status"]);
    assert.match(stdout, /confinement +none, although it is preferred: .*a limit of namespaces/);
    await daemon.down();
  });

  it("refuses to start VMs where confinement is required, and keeps those that run", async (t) => {
    if (!daemon) return t.skip(obstacle);
    await daemon.up(["--confinement", "required"]);
    const { controller } = daemon;
    const [kept] = (await controller.listSandboxes()).map(({ id }) => id);
    assert.ok(kept);
    assert.equal((await controller.evalCode(kept, "1 + 1")).value, 2);
    assert.equal((await controller.getSandbox(kept)).confinement, "none");
    const refused = { code: "CONFINEMENT_UNAVAILABLE", status: 503, message: /a limit of namespaces is reached/ };
    await assert.rejects(controller.spawnSandboxes("python"), refused);
    await assert.rejects(controller.forkSandbox(kept), refused);
    await assert.rejects(controller.createSnapshot("more"), refused);
    await assert.rejects(controller.updateSnapshot("python", { pool: 1 }), refused);
    assert.equal((await controller.getSandbox(kept)).branch_count, 0, "the source was not even stopped");
    assert.equal((await controller.status()).confinement_policy, "required");
  });
});

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
