// Two stores on one machine: each has its own daemon, and no command affects the other.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";

import type { Status } from "forkd";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "../..");
const NODE = join(ROOT, "node_modules/.bin/node");
const ASK_JS = 'import { Controller } from "forkd"; console.log((await new Controller().status()).home)';
const ASK_PY = "import forkd; print(forkd.Controller().status()['home'])";

type Result = { code: number; stdout: string; stderr: string };

describe("two stores", () => {
  let dir: string;
  let homes: string[];
  const runs = new Set<string>();

  const execute = async (program: string, args: string[], env: Record<string, string>): Promise<Result> => {
    const { FORKD_HOME: _home, FORKD_RUN: _run, FORKD_URL: _url, FORKD_TOKEN: _token, ...rest } = process.env;
    const all = { ...rest, XDG_RUNTIME_DIR: dir, NO_COLOR: "1", FORKD_NO_AUTOSTART: "1", PYTHONPATH: join(ROOT, "python/src"), ...env };
    try {
      return { code: 0, ...(await run(program, args, { env: all, cwd: ROOT })) };
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { code, stdout, stderr };
    }
  };
  const forkd = async (env: Record<string, string>, ...args: string[]): Promise<Result> => execute(join(ROOT, "forkd"), args, env);
  const up = async (env: Record<string, string>): Promise<Status> => {
    const { code, stdout, stderr } = await forkd(env, "up", "--bind", "none", "--json");
    assert.equal(code, 0, stderr);
    const status = JSON.parse(stdout) as Status;
    runs.add(status.socket);
    return status;
  };

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-two-"));
    const machine = await prepareHome(resolveHome());
    // the second path is longer than the path of a socket may be
    homes = ["one", "two".repeat(40)].map((name) => join(dir, name));
    for (const root of homes) {
      const home = resolveHome({ FORKD_HOME: root, FORKD_RUN: dir });
      await mkdir(home.root, { mode: 0o700 });
      for (const part of ["images", "guestKernels", "cache"] as const) await symlink(machine[part], home[part]);
    }
  });
  after(async () => {
    for (const home of homes) await forkd({ FORKD_HOME: home }, "down", "--kill-sandboxes");
    await rm(dir, { recursive: true });
  });

  it("have one daemon each, found by FORKD_HOME alone, from the command line and both SDKs", async () => {
    const [one = "", two = ""] = homes;
    await up({ FORKD_HOME: one });
    for (const args of [["ls"], ["snapshot", "ls"]]) {
      const { code, stderr } = await forkd({ FORKD_HOME: two }, ...args);
      assert.notEqual(code, 0, args.join(" "));
      assert.match(stderr, /DAEMON_UNREACHABLE/, args.join(" "));
    }
    assert.match((await forkd({ FORKD_HOME: two }, "down")).stdout, /The daemon is not running/);
    await up({ FORKD_HOME: two });
    assert.equal(runs.size, 2);
    for (const home of homes) {
      const env = { FORKD_HOME: home };
      assert.equal((JSON.parse((await forkd(env, "status", "--json")).stdout) as Status).home, home);
      assert.equal(
        (await execute(NODE, ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", ASK_JS], env)).stdout.trim(),
        home,
      );
      assert.equal((await execute("python3", ["-c", ASK_PY], env)).stdout.trim(), home);
    }
  });

  it("are not confused by a FORKD_RUN that belongs to the other", async () => {
    const [one = "", two = ""] = homes;
    const socket = (JSON.parse((await forkd({ FORKD_HOME: one }, "status", "--json")).stdout) as Status).socket;
    const env = { FORKD_HOME: two, FORKD_RUN: resolve(socket, "..") };
    for (const args of [["ls"], ["snapshot", "ls"], ["up"], ["down"]]) {
      const { code, stderr } = await forkd(env, ...args);
      assert.notEqual(code, 0, args.join(" "));
      assert.match(stderr, /serves another store: .*\/one[^]*WRONG_STORE/, args.join(" "));
    }
    for (const [program, args] of [
      [NODE, ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", ASK_JS]],
      ["python3", ["-c", ASK_PY]],
    ] as const)
      assert.match((await execute(program, [...args], env)).stderr, /another store/, program);
    assert.equal((JSON.parse((await forkd({ FORKD_HOME: one }, "status", "--json")).stdout) as Status).home, one);
  });

  it("that cannot be used are refused with the reason", async () => {
    const cases: [Record<string, string>, RegExp][] = [
      [{ FORKD_HOME: join(dir, "x".repeat(300)) }, /the path is too long/],
      [{ FORKD_HOME: join(dir, "three"), FORKD_RUN: join(dir, "r".repeat(90)) }, /the paths of Unix sockets leave room for 61/],
      [{ FORKD_HOME: "/proc/1/forkd" }, /Cannot use \/proc\/1\/forkd/],
    ];
    for (const [env, text] of cases) {
      const { code, stderr } = await forkd(env, "up", "--bind", "none");
      assert.notEqual(code, 0);
      assert.match(stderr, text);
      assert.match(stderr, /BAD_CONFIG/);
    }
  });
});
