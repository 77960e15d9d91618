// Checks of a store and a run folder, and the errors for unusable ones.

import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { prepareHome, resolveHome } from "../src/home.ts";
import type { TestContext } from "node:test";

async function folder(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-home-"));
  t.after(async () => rm(dir, { recursive: true, force: true }));
  return dir;
}

test("a store with a long path has a short run folder of its own", async (t) => {
  const dir = await folder(t);
  const home = resolveHome({ FORKD_HOME: join(dir, "a".repeat(200), "b".repeat(200)), XDG_RUNTIME_DIR: dir });
  await prepareHome(home);
  assert.match(home.run.slice(dir.length), /^\/forkd-[0-9a-f]{16}$/);
  for (const path of [home.root, home.images, home.run]) assert.equal((await stat(path)).mode & 0o777, 0o700);
});

test("the default store and one that is named have different run folders", () => {
  const env = { XDG_RUNTIME_DIR: "/x", XDG_DATA_HOME: "/d" };
  assert.equal(resolveHome(env).run, "/x/forkd");
  assert.notEqual(resolveHome({ ...env, FORKD_HOME: "/elsewhere" }).run, "/x/forkd");
  assert.equal(resolveHome({ ...env, FORKD_HOME: "/elsewhere", FORKD_RUN: "/r" }).run, "/r");
});

test("an unusable store is refused with the reason and the variable to set", async (t) => {
  const dir = await folder(t);
  await writeFile(join(dir, "file"), "");
  const good = { FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") };
  const cases: [Record<string, string>, RegExp, RegExp][] = [
    [{ FORKD_HOME: join(dir, "x".repeat(300)) }, /^Cannot use .*…: the path is too long/, /FORKD_HOME/],
    [{ FORKD_HOME: `${dir}${"/y".repeat(2000)}` }, /the path is too long/, /FORKD_HOME/],
    [{ FORKD_HOME: join(dir, "file", "home") }, /a part of the path is a file/, /FORKD_HOME/],
    [{ FORKD_HOME: "/proc/1/forkd" }, /^Cannot use \/proc\/1\/forkd: /, /FORKD_HOME/],
    [{ FORKD_RUN: join(dir, "z".repeat(100)) }, /it has \d+ bytes, and the paths of Unix sockets leave room for 61/, /FORKD_RUN/],
    [{ FORKD_RUN: join(dir, "file", "run") }, /a part of the path is a file/, /FORKD_RUN/],
  ];
  for (const [env, message, hint] of cases)
    await assert.rejects(prepareHome(resolveHome({ ...good, ...env })), { code: "BAD_CONFIG", message, hint });
});

test("a store that others can write to is refused", async (t) => {
  const dir = await folder(t);
  const home = resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") });
  await mkdir(home.root);
  await chmod(home.root, 0o777);
  await assert.rejects(prepareHome(home), { code: "HOME_UNSAFE" });
});
