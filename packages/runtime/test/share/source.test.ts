// Host folders that may be shared, and their mount points.

import assert from "node:assert/strict";
import { mkdir, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { hiddenFrom, holdsNoFiles } from "../../src/share/hidden.ts";
import { checkShares, isBelow } from "../../src/share/source.ts";
import { tempDir, tempHome } from "../image/helpers/temp-home.ts";

test("a source is a folder, identified by its real path", async (t) => {
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
    ["/", /root folder of the host/],
    ["/proc/self", /holds no ordinary files/],
    ["/sys", /holds no ordinary files/],
    [home.root, /belongs to the daemon/],
    [home.images, /belongs to the daemon/],
    [home.run, /belongs to the daemon/],
  ] as const)
    await assert.rejects(one(source), { code: "SHARE_FAILED", message: why }, source);
});

test("a target is a normalised path, not a system folder of the guest, and unique", async (t) => {
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

test("the daemon's own folders and special file systems are hidden", async (t) => {
  const home = await tempHome(t);
  const hidden = await hiddenFrom(home);
  const { dev, ino } = await stat(home.root, { bigint: true });
  assert.ok(hidden.some((folder) => folder.dev === dev && folder.ino === ino));
  for (const path of ["/proc", "/sys"]) assert.equal(await holdsNoFiles(path), true, path);
  for (const path of [home.root, "/dev"]) assert.equal(await holdsNoFiles(path), false, path);
});

test("a sibling with the same prefix is not below", () => {
  assert.ok(isBelow("/a/b", "/a") && isBelow("/a", "/a") && isBelow("/a", "/"));
  assert.ok(!isBelow("/ab", "/a") && !isBelow("/", "/a"));
});
