// Permissions for shares, and shares that forks inherit from their snapshot.

import assert from "node:assert/strict";
import { mkdir, rename, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { allowedShares, inheritedShares } from "../../src/service/shares.ts";
import { tempDir, tempHome } from "../../../runtime/test/image/helpers/temp-home.ts";
import type { Caller } from "../../src/service/caller.ts";
import type { Core } from "../../src/service/core.ts";
import type { Share } from "@forkd/runtime/share/server";

const LOCAL = { principal: "local", isOperator: true } as Caller;
const OPERATOR = { principal: "a-token", isAdmin: true, isOperator: true } as Caller;
const ADMIN = { principal: "a-token", isAdmin: true } as Caller;

async function core(t: TestContext, facts: { shareRoots?: string; known?: Share[] } = {}): Promise<Core> {
  const { shareRoots = null, known = [] } = facts;
  return {
    home: await tempHome(t),
    settings: { shareRoots },
    tables: { snapshots: { get: () => ({ shares: known }) } },
  } as unknown as Core;
}

const at = (source: string): Share[] => [{ source, target: "/mnt" }];

test("the daemon's own user may share any folder, a token without share_roots none", async (t) => {
  const dir = await tempDir(t);
  const none = await core(t);
  assert.deepEqual(await allowedShares(none, at(dir), LOCAL), at(dir));
  for (const caller of [OPERATOR, ADMIN]) {
    await assert.rejects(allowedShares(none, at(dir), caller), { code: "FORBIDDEN" });
    assert.deepEqual(await allowedShares(none, [], caller), []);
  }
});

test("an operator's token may share folders below share_roots, by any path to them", async (t) => {
  const dir = await tempDir(t);
  for (const name of ["root/sub", "rooted", "outside"]) await mkdir(join(dir, name), { recursive: true });
  await symlink("../outside", join(dir, "root", "out"));
  await symlink("root/sub", join(dir, "in"));
  const some = await core(t, { shareRoots: `/nowhere,${join(dir, "root")}` });
  for (const name of ["root", "root/sub", "in"]) {
    const [share] = await allowedShares(some, at(join(dir, name)), OPERATOR);
    assert.equal(share?.source, name === "root" ? join(dir, "root") : join(dir, "root", "sub"));
    await assert.rejects(allowedShares(some, at(join(dir, name)), ADMIN), { code: "FORBIDDEN" });
  }
  // the error must not reveal whether a path outside exists
  for (const name of ["rooted", "outside", "none", "root/out", "root/../outside", "root/.."])
    await assert.rejects(allowedShares(some, at(join(dir, name)), OPERATOR), { code: "FORBIDDEN" }, name);
  await assert.rejects(allowedShares(some, [...at(join(dir, "root")), { source: dir, target: "/b" }], OPERATOR), { code: "FORBIDDEN" });
});

test("a fork has the shares of its snapshot, except those whose folder was removed or became a link", async (t) => {
  const dir = await tempDir(t);
  for (const name of ["kept", "gone", "swapped", "other"]) await mkdir(join(dir, name));
  const known = ["kept", "gone", "swapped"].map((name) => ({ source: join(dir, name), target: `/${name}` }));
  const one = await core(t, { known });
  assert.deepEqual(await inheritedShares(one, "sn-1"), { shares: known, warnings: [] });
  await rm(join(dir, "gone"), { recursive: true });
  await rename(join(dir, "swapped"), join(dir, "moved"));
  await symlink("other", join(dir, "swapped"));
  const { shares, warnings } = await inheritedShares(one, "sn-1");
  assert.deepEqual(shares, known.slice(0, 1));
  assert.deepEqual(
    warnings.map((text) => text.split(":")[0]),
    ["/gone is not there", "/swapped is not there"],
  );
});
