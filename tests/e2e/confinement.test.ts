// Confined VMMs: the limits of an attacker who controls one, and no effect on sandboxes.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { access } from "node:fs/promises";
import { release } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { TestDaemon } from "../helpers/daemon.ts";
import { BROKEN_VMM } from "../helpers/security-rows.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { TestUser } from "../helpers/user.ts";
import { PYTHON_WARM } from "../helpers/vm.ts";

import type { SandboxInfo } from "forkd";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const NODE = join(root, "node_modules/.bin/node");
const BREAK_IN = ["--disable-warning=ExperimentalWarning", join(root, "tests/programs/break-in.ts")];
const NAMESPACES = ["user", "mnt", "pid", "ipc", "uts", "net"];
/** Namespaces that each clone has for itself; it shares the others with its zygote */
const OWN_NAMESPACES = ["user", "ipc", "uts"];
/** 0 to 2, the two channels and the device state; a clone with a disk also has its saved state and two layers */
const DESCRIPTORS = [0, 1, 2, 3, 4, 5];
const CLONE_DESCRIPTORS = [...DESCRIPTORS, 6, 7, 8];
/** Layers that a clone with a disk must not write */
const LAYERS = ["writes a layer that was frozen", "maps a layer that was frozen", "writes the zygote's layer", "writes a sibling's layer"];

type Attempt = { what: string; outcome: string; who: "user" | "root" | "nobody" };
type Result = { attempts: Attempt[]; descriptors: number[] };

/** Makes each attempt unconfined as well: an attempt that always fails would prove nothing */
async function assertContained(breakIn: (mode: string) => Promise<string>, user: "root" | "user"): Promise<void> {
  const free = JSON.parse(await breakIn("free")) as Result;
  const able = free.attempts.filter(({ who }) => who === "user" || who === user);
  assert.deepEqual(
    able.filter(({ outcome }) => outcome !== "done"),
    [],
    "without confinement these work",
  );
  for (const mode of ["listed", "denied", "listed-clone", "denied-clone", "listed-frozen", "denied-frozen"]) {
    const { attempts, descriptors } = JSON.parse(await breakIn(mode)) as Result;
    assert.ok(attempts.length > able.length);
    for (const { what, outcome } of attempts) {
      assert.equal(outcome === "done", what.startsWith("own: "), `${mode}: ${what}: ${outcome}`);
      // another errno would mean that the attempt failed for a reason other than the filter
      if (what.startsWith("calls ")) assert.equal(outcome, "EPERM", `${mode}: ${what}`);
      if (outcome !== "done") assert.match(outcome, /^(E[A-Z0-9]+|ended by \w+)$/, `${mode}: ${what}`);
    }
    assert.equal(attempts.find(({ what }) => what === "starts another program")?.outcome, "ended by execve");
    const changes = attempts.find(({ what }) => what === "changes the mode of the memory image")?.outcome;
    assert.equal(changes, mode.startsWith("listed") ? "ended by chmod" : "EROFS", "a call that QEMU does not need");
    const isClone = mode.endsWith("-clone");
    assert.deepEqual(descriptors, isClone ? CLONE_DESCRIPTORS : DESCRIPTORS);
    if (isClone) assertRelatives(attempts, ["the zygote", "a sibling"]);
    if (isClone) assertLayers(attempts);
    if (mode.endsWith("-frozen")) {
      assertRelatives(attempts, ["the first process", "a frozen copy"]);
      assert.equal(attempts.find(({ what }) => what === "own: signals a thread of its own")?.outcome, "done");
    }
    assertRows(attempts);
  }
}

/** Asserts that the VMM can reach none of these processes */
function assertRelatives(attempts: readonly Attempt[], names: readonly string[]): void {
  for (const name of names)
    for (const deed of ["signals", "opens", "seizes", "reads the memory of", "limits", "slows", "lets a descriptor signal", "moves"]) {
      const tried = attempts.find(({ what }) => what.startsWith(`${deed} ${name}`));
      assert.equal(tried?.outcome, "EPERM", `${deed} ${name}`);
    }
}

function assertLayers(attempts: readonly Attempt[]): void {
  for (const name of LAYERS) assert.match(attempts.find(({ what }) => what === name)?.outcome ?? "", /^E(?:ACCES|BADF|NOENT|ROFS)$/, name);
}

/** Asserts that both columns of each row in SECURITY.md on a broken VMM were tried */
function assertRows(attempts: readonly Attempt[]): void {
  const isTried = (name: string, isDone: boolean): boolean =>
    attempts.some(
      ({ what, outcome }) => (what === name || (name.endsWith("/") && what.startsWith(name))) && (outcome === "done") === isDone,
    );
  for (const { can, cannot, done, refused } of BROKEN_VMM) {
    assert.deepEqual(done.length > 0 && done.filter((name) => !isTried(name, true)), [], can);
    assert.deepEqual(refused.length > 0 && refused.filter((name) => !isTried(name, false)), [], cannot);
  }
}

function namespacesOf(pid: number, names = NAMESPACES): string[] {
  return names.map((name) => readlinkSync(`/proc/${pid}/ns/${name}`));
}

/** Whether the kernel limits processes per user namespace, not per user */
function countsByNamespace(): boolean {
  const [major = 0, minor = 0] = release().split(".").map(Number);
  return major > 5 || (major === 5 && minor >= 14);
}

function assertConfined(sandboxes: readonly SandboxInfo[]): void {
  const own = sandboxes.flatMap(({ pid, confinement, started_by }) => {
    assert.equal(confinement, "namespaces");
    return namespacesOf(pid ?? 0, started_by === "clone" ? OWN_NAMESPACES : NAMESPACES);
  });
  const hosts = namespacesOf(process.pid);
  assert.equal(new Set([...hosts, ...own]).size, hosts.length + own.length, "a namespace is shared");
  for (const { pid } of sandboxes) for (const name of namespacesOf(pid ?? 0)) assert.ok(!hosts.includes(name), name);
  for (const { pid } of sandboxes) {
    const devices = readFileSync(`/proc/${pid}/net/dev`, "utf8").trim().split("\n").slice(2);
    assert.match(devices.join(), /^ *lo:(?: +0)+$/, "it has a network");
    if (countsByNamespace()) assert.match(readFileSync(`/proc/${pid}/limits`, "utf8"), /^Max processes +512 /m);
  }
}

describe("a VMM that was broken into", () => {
  let daemon: TestDaemon;
  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("accesses only its own folder and its images", async (t) => {
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

  it("is confined alike in forks, pooled VMs, branches, and after a restart of the daemon", async () => {
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

  it("and its sandbox report the confinement", async () => {
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
    const home = await prepareHome(resolveHome());
    await user?.fill(home);
    await user?.addSnapshot(await warmSnapshot(home, "python", PYTHON_WARM));
  });
  after(async () => user?.remove());

  it("accesses only its own folder and its images", async (t) => {
    if (!user) return t.skip(obstacle);
    if (!(await isThere("/usr/bin/python3"))) return t.skip("/usr/bin/python3 is not installed");
    const me = user;
    const forkd = async (...args: string[]): Promise<string> => me.as(join(root, "forkd"), args);
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

describe("a host that does not allow the confinement of VMMs", () => {
  /** A user namespace in which no further user namespace can be created */
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

  it("runs VMMs unconfined, and reports it, if confinement is preferred", async (t) => {
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

  it("refuses to start VMs if confinement is required, and running VMs stay", async (t) => {
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
    assert.equal((await controller.getSandbox(kept)).branch_count, 0, "the source was stopped");
    assert.equal((await controller.status()).confinement_policy, "required");
  });
});

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
