// Tokens: creation, lookup, revocation, and loading from a file.

import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { Db } from "../../src/store/db.ts";
import { Tokens } from "../../src/store/tokens.ts";
import type { TestContext } from "node:test";
import type { ErrorCode } from "@forkd/runtime/errors";

const GOOD = "0123456789abcdef-good";

async function fixture(t: TestContext): Promise<{ dir: string; db: Db }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-tokens-"));
  const db = new Db(join(dir, "state.db"));
  t.after(async () => {
    db.close();
    await rm(dir, { recursive: true });
  });
  return { dir, db };
}

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => error instanceof ForkdError && error.code === code;
}

test("a token is shown once, found by its value and stored only as a hash", async (t) => {
  const { db } = await fixture(t);
  const tokens = new Tokens(db);
  const { token, ...shown } = tokens.create({ name: "ci", scope: "exec", max_sandboxes: 3 });
  assert.match(token, /^fkd_[0-9a-f]{64}$/);
  assert.deepEqual(tokens.find(token), { name: "ci", project: "default", scope: "exec", maxSandboxes: 3 });
  for (const wrong of ["", token.slice(0, -1), `${token}x`, "x".repeat(10_000)]) assert.equal(tokens.find(wrong), null);
  assert.equal(tokens.list()[0]?.created_at_unix, shown.created_at_unix);
  assert.ok(!JSON.stringify(tokens.list()).includes(token));
  assert.ok(!JSON.stringify(db.all("SELECT * FROM tokens")).includes(token));
});

test("a token is equal in the form of E2B's keys, and no other value is", async (t) => {
  const { db } = await fixture(t);
  const tokens = new Tokens(db);
  const { token } = tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const digits = token.slice("fkd_".length);
  assert.equal(tokens.find(`e2b_${digits}`)?.name, "ci");
  for (const wrong of [digits, `E2B_${digits}`, `e2b_${digits}0`, `e2b_${digits.slice(1)}`, `e2b_e2b_${digits}`])
    assert.equal(tokens.find(wrong), null);
});

test("tokens survive a restart", async (t) => {
  const { db } = await fixture(t);
  const { token } = new Tokens(db).create({ name: "ci", scope: "read", max_sandboxes: null });
  assert.equal(new Tokens(db).find(token)?.name, "ci");
});

test("rotating ends the old value, revoking all values", async (t) => {
  const { db } = await fixture(t);
  const tokens = new Tokens(db);
  const old = tokens.create({ name: "ci", scope: "read", max_sandboxes: null }).token;
  const fresh = tokens.rotate("ci").token;
  assert.equal(tokens.find(old), null);
  assert.equal(tokens.find(fresh)?.name, "ci");
  tokens.revoke("ci");
  assert.equal(tokens.find(fresh), null);
  assert.equal(new Tokens(db).find(fresh), null);
  assert.throws(() => tokens.revoke("ci"), isCode("NOT_FOUND"));
  assert.throws(() => tokens.rotate("ci"), isCode("NOT_FOUND"));
});

test("names are unique, and never those of the daemon itself", async (t) => {
  const { db } = await fixture(t);
  const tokens = new Tokens(db);
  const request = { scope: "read", max_sandboxes: null } as const;
  tokens.create({ name: "ci", ...request });
  assert.throws(() => tokens.create({ name: "ci", ...request }), isCode("EXISTS"));
  for (const name of ["local", "token-file"]) assert.throws(() => tokens.create({ name, ...request }), isCode("BAD_NAME"));
});

test("the last use is written at most once a minute", async (t) => {
  const { db } = await fixture(t);
  let now = 1_000_000;
  const tokens = new Tokens(db, { nowMs: () => now });
  const { token } = tokens.create({ name: "ci", scope: "read", max_sandboxes: null });
  const lastUsed = (): unknown => db.get("SELECT last_used FROM tokens")?.["last_used"];
  assert.equal(lastUsed(), null);
  tokens.find(token);
  assert.equal(lastUsed(), 1000);
  now += 59_000;
  tokens.find(token);
  assert.equal(lastUsed(), 1000);
  now += 1000;
  tokens.find(token);
  assert.equal(lastUsed(), 1060);
});

test("the token of a file has scope operator, and changes with the file", async (t) => {
  const { db, dir } = await fixture(t);
  const tokens = new Tokens(db);
  const path = join(dir, "token");
  await writeFile(path, `${GOOD}\n`, { mode: 0o600 });
  await tokens.loadFile(path);
  assert.deepEqual(tokens.find(GOOD), { name: "token-file", project: "default", scope: "operator", maxSandboxes: null });
  assert.equal(tokens.list()[0]?.source, "file");
  assert.throws(() => tokens.rotate("token-file"), isCode("BAD_REQUEST"));
  await writeFile(path, `${GOOD}-2`);
  await tokens.loadFile(path);
  assert.equal(tokens.find(GOOD), null);
  assert.equal(tokens.find(`${GOOD}-2`)?.name, "token-file");
});

test("a file with a weak token or open permissions is refused, and the previous token stays", async (t) => {
  const { db, dir } = await fixture(t);
  const tokens = new Tokens(db);
  const path = join(dir, "token");
  await writeFile(path, GOOD, { mode: 0o600 });
  await tokens.loadFile(path);
  const bad: [string, ErrorCode][] = [
    ["", "WEAK_TOKEN"],
    ["fifteen-bytes-x", "WEAK_TOKEN"],
    ["REPLACE_ME-with-something-long", "WEAK_TOKEN"],
    ["change_me-0123456789abcdef", "WEAK_TOKEN"],
    ["two words 0123456789abcdef", "WEAK_TOKEN"],
    ["naïve-0123456789abcdef-ü", "WEAK_TOKEN"],
    ["x".repeat(5000), "BAD_CONFIG"],
  ];
  for (const [text, code] of bad) {
    await writeFile(path, text);
    await assert.rejects(tokens.loadFile(path), isCode(code), text.slice(0, 40));
    assert.ok(tokens.find(GOOD), "the token from before");
  }
  await writeFile(path, GOOD);
  await chmod(path, 0o640);
  await assert.rejects(tokens.loadFile(path), isCode("BAD_CONFIG"));
  await assert.rejects(tokens.loadFile(join(dir, "none")), isCode("BAD_CONFIG"));
});
