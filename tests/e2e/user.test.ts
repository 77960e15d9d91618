// The demo, as whoever runs the tests and as an ordinary user with a store of its own.

import assert from "node:assert/strict";
import { execFile, type ExecFileException } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { buildImage, prepareHome, resolveHome, Runtime } from "@forkd/daemon";
import { assertDistinct } from "../helpers/guest.ts";
import { processIds, tracesOf } from "../helpers/host.ts";

import type { Home } from "@forkd/daemon";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const forkd = join(root, "forkd");
const DEMO_WITHIN_MS = 240_000;

/** What a grandchild's computation adds up to: sum of arange(1000) * i for i below 40 */
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

  it("does what it says, with nothing left", async () => {
    const earlier = await tracesOf(home);
    const { stdout } = await run(forkd, ["demo", "--json"], { timeout: DEMO_WITHIN_MS });
    assertReport(JSON.parse(stdout) as Report);
    assert.deepEqual(await tracesOf(home), earlier);
  });

  describe("as an ordinary user", () => {
    const user = `forkd-test-${randomBytes(3).toString("hex")}`;
    let userHome: string | undefined;
    let obstacle: string | undefined;

    before(async () => {
      if (process.getuid?.() !== 0) {
        obstacle = "only root can add a user for this test";
        return;
      }
      await run("useradd", ["--create-home", "--user-group", "--shell", "/bin/sh", user]);
      userHome = (await readFile("/etc/passwd", "utf8"))
        .split("\n")
        .find((line) => line.startsWith(`${user}:`))
        ?.split(":")[5];
      assert.ok(userHome);
      try {
        await as("test", ["-r", forkd, "-a", "-x", join(root, "node_modules/.bin/node"), "-a", "-x", join(root, "dist/bin/forkd-warden")]);
      } catch {
        obstacle = `the user ${user} may not read ${root}`;
      }
    });
    after(async () => {
      if (userHome === undefined) return;
      await run("userdel", ["--remove", user]).catch((error: ExecFileException) => {
        // it grumbles that there is no mail box
        if (error.code !== 12) throw error;
      });
      await assert.rejects(access(userHome), { code: "ENOENT" });
    });

    async function as(program: string, args: readonly string[]): Promise<string> {
      const env = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: userHome, FORKD_HOME: `${userHome}/store`, FORKD_RUN: `${userHome}/run` };
      const { stdout } = await run(
        "setpriv",
        [
          "--reuid",
          user,
          "--regid",
          user,
          "--clear-groups",
          "--reset-env",
          "env",
          ...Object.entries(env).map(([key, text]) => `${key}=${text}`),
          program,
          ...args,
        ],
        {
          timeout: DEMO_WITHIN_MS,
          cwd: "/",
        },
      );
      return stdout;
    }

    it("does the same, without any privilege", async (t) => {
      if (obstacle !== undefined) return t.skip(obstacle);
      const store = `${userHome}/store`;
      await run("install", ["-d", "-m", "700", "-o", user, "-g", user, store, `${userHome}/run`]);
      // this makes the guest kernel of the present agent, so that it need not be fetched
      await (await Runtime.start({ home })).close();
      for (const folder of [home.images, home.guestKernels]) await run("cp", ["-a", folder, store]);
      await run("chown", ["-R", `${user}:${user}`, store]);
      const report = JSON.parse(await as(forkd, ["demo", "--json"])) as Report;
      assertReport(report);
      assert.deepEqual(await processesOfUser(), [], "processes of the user are left");
      const traces = await tracesOf(resolveHome({ FORKD_HOME: store, FORKD_RUN: `${userHome}/run` }));
      assert.deepEqual(traces, { staging: [], flat: [], disks: [], snapshots: [], tags: [], mounts: [] });
      assert.equal((await run("ls", ["-A", `${userHome}/run`])).stdout, "");
    });

    it("has a daemon of its own, whose sandboxes outlive it, and which nobody else can use", async (t) => {
      if (obstacle !== undefined) return t.skip(obstacle);
      const json = async (...args: string[]): Promise<unknown> => JSON.parse(await as(forkd, [...args, "--json"]));
      const machine = ["--memory-mib", "256", "--disk-mib", "64"];
      await as(forkd, ["snapshot", "create", "warm", "--image", "python-numpy", ...machine, "-c", "kept = 41"]);
      await as(forkd, ["fork", "warm", "--name", "mine"]);
      await as(forkd, ["exec", "mine", "--", "sh", "-c", "echo mine > /srv/file && sync"]);
      assert.equal(await as(forkd, ["eval", "mine", "--", "kept += 1; kept"]), "42\n");
      const socket = `${userHome}/run/forkd.sock`;
      await assert.rejects(
        run("setpriv", [
          "--reuid",
          "65534",
          "--clear-groups",
          "curl",
          "--silent",
          "--fail",
          "--unix-socket",
          socket,
          "http://forkd/healthz",
        ]),
      );

      const { pid } = (await json("status")) as { pid: number };
      process.kill(pid, "SIGKILL");
      assert.equal(await as(forkd, ["eval", "mine", "--", "kept"]), "42\n");
      await as(forkd, ["branch", "mine", "--tag", "later"]);
      await as(forkd, ["fork", "later", "--name", "child"]);
      assert.equal(await as(forkd, ["eval", "child", "--", "kept"]), "42\n");
      assert.equal(await as(forkd, ["exec", "child", "--", "cat", "/srv/file"]), "mine\n");

      await as(forkd, ["kill", "--all"]);
      await as(forkd, ["rmi", "later", "warm"]);
      await as(forkd, ["down"]);
      assert.deepEqual(await processesOfUser(), [], "processes of the user are left");
      const traces = await tracesOf(resolveHome({ FORKD_HOME: `${userHome}/store`, FORKD_RUN: `${userHome}/run` }));
      assert.deepEqual(traces, { staging: [], flat: [], disks: [], snapshots: [], tags: [], mounts: [] });
    });

    async function processesOfUser(): Promise<number[]> {
      const uid = (await run("id", ["-u", user])).stdout.trim();
      const left = [];
      for (const pid of processIds()) {
        const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
        if (new RegExp(`^Uid:\\s+${uid}\\b`, "m").test(status) && !/^State:\s+Z/m.test(status)) left.push(pid);
      }
      return left;
    }
  });
});
