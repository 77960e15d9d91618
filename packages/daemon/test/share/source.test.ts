// Which folders of the host may be shared, and where in a guest.

import assert from "node:assert/strict";
import { mkdir, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { hiddenFrom, holdsNoFiles } from "../../src/share/hidden.ts";
import { checkShares, isBelow } from "../../src/share/source.ts";
import { tempDir, tempHome } from "../image/helpers/temp-home.ts";

test("a source is a folder, known by its real path", async (t) => {
  const home = await tempHome(t);
  const dir = await tempDir(t);
  await mkdir(join(dir, "real"));
  await symlink("real", join(dir, "link"));
  await writeFile(join(dir, "file"), "");
  const one = async (source: string): Promise<unknown> => checkShares([{ source, target: "/mnt" }], home);
  assert.deepEqual(await one(join(dir, "link")), [{ source: join(dir, "real"), target: "/mnt" }]);
  for (const [source, why] of [
    [join(dir, "none"), /it does not exist/],
    [join(dir, "file"), /not a folder/],
    ["relative", /must be absolute/],
    [`${dir}\0`, /must be absolute/],
    ["/", /the whole machine/],
    ["/proc/self", /holds no files/],
    ["/sys", /holds no files/],
    [home.root, /belongs to the daemon/],
    [home.images, /belongs to the daemon/],
    [home.run, /belongs to the daemon/],
  ] as const)
    await assert.rejects(one(source), { code: "SHARE_FAILED", message: why }, source);
});

test("a target is a plain path that the guest does not need itself, and has it alone", async (t) => {
  const home = await tempHome(t);
  const source = await tempDir(t);
  const at = async (...targets: string[]): Promise<unknown> =>
    checkShares(
      targets.map((target) => ({ source, target })),
      home,
    );
  const bad = [
    "/",
    "/proc",
    "/proc/x",
    "/sys/x",
    "/dev",
    "/dev/shm",
    "/etc",
    "/run",
    "/run/forkd",
    "/run/forkd/x",
    "mnt",
    "/mnt/",
    "/mnt/..",
    "//mnt",
    "/./mnt",
    "/a\0",
  ];
  for (const target of bad) await assert.rejects(at(target), { code: "SHARE_FAILED" }, target);
  for (const target of ["/mnt", "/etc/tool", "/run/x", "/root", "/usr/share/ü"]) await at(target);
  await assert.rejects(at("/a", "/a"), { code: "SHARE_FAILED" });
  await assert.rejects(at("/a/b", "/c", "/a"), { code: "SHARE_FAILED" });
  await at("/a", "/ab", "/b/a");
});

test("the daemon's own folders and what is no file system of files are hidden", async (t) => {
  const home = await tempHome(t);
  const hidden = await hiddenFrom(home);
  const { dev, ino } = await stat(home.root, { bigint: true });
  assert.ok(hidden.some((folder) => folder.dev === dev && folder.ino === ino));
  for (const path of ["/proc", "/sys"]) assert.equal(await holdsNoFiles(path), true, path);
  for (const path of [home.root, "/dev"]) assert.equal(await holdsNoFiles(path), false, path);
});

test("below is not beside", () => {
  assert.ok(isBelow("/a/b", "/a") && isBelow("/a", "/a") && isBelow("/a", "/"));
  assert.ok(!isBelow("/ab", "/a") && !isBelow("/", "/a"));
});
