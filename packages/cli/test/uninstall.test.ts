// forkd uninstall with test folders.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd, temporaryFolder } from "./helpers.ts";
import * as samples from "./samples.ts";

type Report = { dry_run: boolean; removed: { path: string; bytes: number }[]; left: string[] };

/** A store, a run folder and caches as forkd creates them */
async function installed(folder: string): Promise<Record<string, string>> {
  const files = [
    "home/images/rootfs.squashfs",
    "home/snapshots/sn-1/memory.ram",
    "home/state.db",
    "home/state.db-wal",
    "home/audit.log",
    "home/config.json",
    "run/daemon.log",
    "run/daemon/warden.log",
    "cache/forkd/node/x",
  ];
  for (const file of files) {
    await mkdir(join(folder, file, ".."), { recursive: true, mode: 0o700 });
    await writeFile(join(folder, file), "x");
  }
  return { FORKD_HOME: join(folder, "home"), FORKD_RUN: join(folder, "run"), XDG_CACHE_HOME: join(folder, "cache") };
}

test("--dry-run lists everything and removes nothing", async () => {
  await using folder = await temporaryFolder();
  const env = await installed(folder.path);
  const before = await readdir(folder.path, { recursive: true });
  const { code, stdout } = await forkd(["uninstall", "--dry-run"], env);
  assert.equal(code, 0);
  for (const path of ["home/images", "home/snapshots", "home/state.db", "run/daemon", "cache/forkd/node"])
    assert.match(stdout, new RegExp(`^${join(folder.path, path)} +\\d`, "m"));
  assert.match(stdout, /^WOULD GO +SIZE$/m);
  assert.match(stdout, /^Would free .*Not touched: this checkout/m);
  const after = (await readdir(folder.path, { recursive: true })).filter((path) => !path.startsWith("cache/forkd/node"));
  assert.deepEqual(
    after,
    before.filter((path) => !path.startsWith("cache/forkd/node")),
  );
});

test("without a terminal it needs --yes", async () => {
  await using folder = await temporaryFolder();
  const env = await installed(folder.path);
  const { code, stderr } = await forkd(["uninstall"], env);
  assert.equal(code, 2);
  assert.match(stderr, /--yes/);
  assert.deepEqual((await readdir(join(folder.path, "home"))).length, 6);
  assert.equal((await forkd(["uninstall", "--json"], env)).code, 2);
});

test("--yes removes store, run folder and caches, and lists them", async () => {
  await using folder = await temporaryFolder();
  const { code, stdout } = await forkd(["uninstall", "--yes", "--json"], await installed(folder.path));
  const report = JSON.parse(stdout) as Report;
  assert.equal(code, 0);
  assert.deepEqual([report.dry_run, report.left], [false, []]);
  assert.ok(report.removed.some(({ path, bytes }) => path === join(folder.path, "home", "snapshots") && bytes > 0));
  assert.deepEqual(await readdir(folder.path), ["cache"]);
  assert.deepEqual(await readdir(join(folder.path, "cache")), []);
  assert.match((await forkd(["uninstall", "--yes"], { ...(await installed(folder.path)) })).stdout, /^REMOVED +SIZE$/m);
});

test("files that forkd did not create are kept, and so is their folder", async () => {
  await using folder = await temporaryFolder();
  const env = await installed(folder.path);
  await writeFile(join(folder.path, "home", "thesis.tex"), "x");
  const { stdout } = await forkd(["uninstall", "--yes"], env);
  assert.match(stdout, new RegExp(`^Kept, because forkd did not create it: ${join(folder.path, "home", "thesis.tex")}$`, "m"));
  assert.deepEqual(await readdir(join(folder.path, "home")), ["thesis.tex"]);
});

test("a store that is a link is refused, and nothing is removed", async () => {
  await using folder = await temporaryFolder();
  const env = await installed(folder.path);
  await symlink(join(folder.path, "home"), join(folder.path, "link"));
  const { code, stderr } = await forkd(["uninstall", "--yes"], { ...env, FORKD_HOME: join(folder.path, "link") });
  assert.equal(code, 1);
  assert.match(stderr, /Cannot remove \S+link: it is no folder\.\nNothing was changed.*\[HOME_UNSAFE\]/);
  assert.ok((await readdir(join(folder.path, "run"))).includes("daemon.log"));
});

test("the daemon is stopped with its sandboxes first", async () => {
  const process = spawn("sleep", ["30"]);
  await using daemon = await fakeDaemon({
    "GET /v1/config": { json: { drain_secs: { value: 1, source: "default" } } },
    "POST /v1/stop": (_asked, response) => {
      process.kill();
      response.writeHead(202).end();
    },
  });
  const home = daemon.env["FORKD_HOME"] ?? "";
  daemon.answers["GET /v1/status"] = { json: samples.status({ pid: process.pid ?? 0, sandboxes: 2, home }) };
  await mkdir(join(home, "images"), { recursive: true });
  const { code, stdout } = await forkd(["uninstall", "--yes"], { ...daemon.env, XDG_CACHE_HOME: join(daemon.folder, "cache") });
  assert.equal(code, 0);
  assert.match(stdout, new RegExp(`^Stopped the daemon \\(pid ${process.pid}\\) and ended its 2 sandboxes\\.$`, "m"));
  assert.deepEqual(daemon.asked.find(({ path }) => path === "/v1/stop")?.body, { kill_sandboxes: true });
  await assert.rejects(readdir(home), { code: "ENOENT" });
});

test("a daemon of another store, or of another machine, is not stopped", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/status": { json: samples.status({ home: "/srv/other" }) } });
  await mkdir(daemon.env["FORKD_HOME"] ?? "");
  const { code, stderr } = await forkd(["uninstall", "--yes"], daemon.env);
  assert.equal(code, 1);
  assert.match(stderr, /has the store \/srv\/other\.\n.*Nothing was removed\. \[IN_USE\]/);
  assert.equal((await forkd(["uninstall", "--yes", "--daemon-url", "http://127.0.0.1:9"], daemon.env)).code, 2);
  assert.deepEqual(daemon.lines(), ["GET /v1/status"]);
});
