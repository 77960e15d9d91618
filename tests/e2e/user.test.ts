// The demo as the current user, and as an unprivileged user with its own store.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { buildImage, prepareHome, resolveHome } from "@forkd/runtime";
import { assertDistinct } from "../helpers/guest.ts";
import { tracesOf, type Traces } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { TestUser } from "../helpers/user.ts";

import type { Home } from "@forkd/runtime";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const forkd = join(root, "forkd");
const NOTHING: Traces = { staging: [], flat: [], disks: [], snapshots: [], tags: [], mounts: [] };

/** Result of a grandchild's computation: sum of arange(1000) * i for i below 40 */
const TOTAL = 499_500 * 780;

type Child = { id: string; fork_ms: number; first_eval_ms: number; value: unknown };
type Report = {
  accelerator: string;
  parent: { boot_ms: number; freeze_ms: number };
  children: Child[];
  branch: { pause_ms: number; ready_ms: number; delta_bytes: number };
  grandchildren: Child[];
  leftovers: number;
};

function assertReport(report: Report): void {
  assert.ok(["kvm", "tcg"].includes(report.accelerator), report.accelerator);
  for (const ms of [report.parent.boot_ms, report.parent.freeze_ms, report.branch.pause_ms, report.branch.ready_ms]) assertPositive(ms);
  assertPositive(report.branch.delta_bytes);
  assert.equal(report.children.length, 10);
  assert.equal(report.grandchildren.length, 3);
  for (const child of [...report.children, ...report.grandchildren]) {
    assertPositive(child.fork_ms);
    assertPositive(child.first_eval_ms);
  }
  assertDistinct(
    "id",
    [...report.children, ...report.grandchildren].map(({ id }) => id),
  );
  assert.deepEqual(
    report.children.map(({ value }) => value),
    Array.from({ length: 10 }, (_, i) => 4950 * i),
  );
  for (const { value } of report.grandchildren) assert.equal((value as unknown[])[0], TOTAL);
  assertDistinct(
    "way of a grandchild",
    report.grandchildren.map(({ value }) => value),
  );
  assert.equal(report.leftovers, 0);
}

function assertPositive(number: number): void {
  assert.ok(Number.isFinite(number) && number > 0, `${number} is not a positive number`);
}

describe("forkd demo", () => {
  let home: Home;
  before(async () => {
    home = await prepareHome(resolveHome());
    await buildImage(home, { name: "python-numpy", packages: ["python3", "python3-numpy"] });
  });

  it("succeeds and leaves nothing behind", async () => {
    const earlier = await tracesOf(home);
    const { stdout } = await run(forkd, ["demo", "--json"], { timeout: patience(40) });
    assertReport(JSON.parse(stdout) as Report);
    assert.deepEqual(await tracesOf(home), earlier);
  });

  describe("as an ordinary user", () => {
    let user: TestUser | undefined;
    let obstacle = "";

    before(async () => {
      const made = await TestUser.make();
      if (typeof made === "string") obstacle = made;
      else user = made;
      await user?.fill(home);
    });
    after(async () => user?.remove());

    it("succeeds without any privilege", async (t) => {
      if (!user) return t.skip(obstacle);
      const report = JSON.parse(await user.as(forkd, ["demo", "--json"])) as Report;
      assertReport(report);
      assert.deepEqual(await user.processes(), [], "processes of the user are left");
      assert.deepEqual(await tracesOf(user.home), NOTHING);
      assert.equal((await run("ls", ["-A", user.home.run])).stdout, "");
    });

    it("has its own daemon, whose sandboxes outlive it, and which other users cannot use", async (t) => {
      if (!user) return t.skip(obstacle);
      const me = user;
      const as = async (...args: string[]): Promise<string> => me.as(forkd, args);
      const machine = ["--memory-mib", "256", "--disk-mib", "64"];
      await as("snapshot", "create", "warm", "--image", "python-numpy", ...machine, "-c", "kept = 41");
      await as("fork", "warm", "--name", "mine");
      await as("exec", "mine", "--", "sh", "-c", "echo mine > /srv/file && sync");
      assert.equal(await as("eval", "mine", "--", "kept += 1; kept"), "42\n");
      const nobody = ["--reuid", "65534", "--clear-groups"];
      const ask = ["curl", "--silent", "--fail", "--unix-socket", join(me.home.run, "forkd.sock"), "http://forkd/healthz"];
      await assert.rejects(run("setpriv", [...nobody, ...ask]));

      const { pid } = JSON.parse(await as("status", "--json")) as { pid: number };
      process.kill(pid, "SIGKILL");
      assert.equal(await as("eval", "mine", "--", "kept"), "42\n");
      await as("branch", "mine", "--tag", "later");
      await as("fork", "later", "--name", "child");
      assert.equal(await as("eval", "child", "--", "kept"), "42\n");
      assert.equal(await as("exec", "child", "--", "cat", "/srv/file"), "mine\n");

      // a folder of the user that contains a file only root can read
      const folder = join(me.home.root, "..", "folder");
      await me.as("mkdir", [folder]);
      await me.as("sh", ["-c", `echo mine > ${folder}/mine`]);
      await run("install", ["-m", "600", "/etc/hostname", `${folder}/root-only`]);
      await as("fork", "warm", "--name", "sharing", "--share", `${folder}:/mnt/folder`);
      const script = "cat /mnt/folder/mine; cat /mnt/folder/root-only 2>&1; touch /mnt/folder/mine 2>&1; ls /mnt/folder; true";
      assert.equal(
        await as("exec", "sharing", "--", "sh", "-c", script),
        "mine\ncat: /mnt/folder/root-only: Permission denied\ntouch: cannot touch '/mnt/folder/mine': Read-only file system\nmine\nroot-only\n",
      );

      await as("kill", "--all");
      await as("rmi", "later", "warm");
      await as("down");
      assert.deepEqual(await me.processes(), [], "processes of the user are left");
      assert.deepEqual(await tracesOf(me.home), NOTHING);
    });
  });
});
