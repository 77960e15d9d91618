// Preview links: valid only for the signed sandbox, port and time, and while their creator has access.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Db } from "../../src/store/db.ts";
import { Previews } from "../../src/store/previews.ts";
import { Tokens } from "../../src/store/tokens.ts";
import { tempDir } from "../helpers/serve.ts";
import type { TestContext } from "node:test";

const REQUEST = { sandbox: "sb-1", port: 8000, expiresInSecs: 60, principal: "local" };

type Fixture = { previews: Previews; tokens: Tokens; path: string; clock: { nowMs: number } };

async function make(t: TestContext): Promise<Fixture> {
  const path = join(await tempDir(t), "state.db");
  const db = new Db(path);
  t.after(() => db.close());
  const tokens = new Tokens(db);
  const clock = { nowMs: 1_000_000 };
  return { previews: new Previews(db, tokens, { nowMs: () => clock.nowMs }), tokens, path, clock };
}

test("a link states what it opens, until it expires", async (t) => {
  const { previews, clock } = await make(t);
  const { token, expiresAtUnix } = previews.create(REQUEST);
  assert.equal(expiresAtUnix, 1060);
  const grant = { sandbox: "sb-1", port: 8000, expiresAtUnix: 1060, principal: "local" };
  assert.deepEqual(previews.verify(token), { grant, isExpired: false });
  clock.nowMs = 1_060_000 - 1;
  assert.equal(previews.verify(token)?.isExpired, false);
  clock.nowMs = 1_060_000;
  assert.equal(previews.verify(token)?.isExpired, true);
});

test("a token is valid in an address and in a cookie", async (t) => {
  const { previews } = await make(t);
  const { token } = previews.create({ ...REQUEST, principal: "a_b-c.d" });
  assert.match(token, /^fkp_[\w.-]+$/);
  assert.ok(Previews.isToken(token));
  assert.ok(!Previews.isToken("fkd_x"));
});

test("any change makes it invalid", async (t) => {
  const { previews } = await make(t);
  const { token } = previews.create(REQUEST);
  for (let at = 0; at < token.length; at++) {
    const other = token[at] === "A" ? "B" : "A";
    assert.equal(previews.verify(token.slice(0, at) + other + token.slice(at + 1)), null, `character ${at}`);
    assert.equal(previews.verify(token.slice(0, at)), null, `cut off at ${at}`);
  }
  for (const added of [`${token}A`, ` ${token}`, `${token}.`, `${token}\n`, token.toUpperCase()])
    assert.equal(previews.verify(added), null);
});

test("a signature for one sandbox, port or time is invalid for another", async (t) => {
  const { previews } = await make(t);
  const [, signature = ""] = previews.create(REQUEST).token.split(".");
  for (const change of [{ sandbox: "sb-2" }, { port: 8001 }, { expiresInSecs: 61 }, { principal: "admin" }]) {
    const [body = ""] = previews.create({ ...REQUEST, ...change }).token.split(".");
    assert.equal(previews.verify(`${body}.${signature}`), null, JSON.stringify(change));
  }
});

test("garbage is refused in any encoding", async (t) => {
  const { previews } = await make(t);
  const signature = "A".repeat(43);
  const bodies = ["", "x", "null", "{}", "[]", '["sb-1"]', '["sb-1","8000",9e9,"local"]', "[1,2,3,4]"];
  for (const body of bodies) assert.equal(previews.verify(`fkp_${Buffer.from(body).toString("base64url")}.${signature}`), null, body);
  for (const token of ["", "fkp_", "fkp_.", `fkp_${"A".repeat(5000)}.${signature}`, "fkd_token"])
    assert.equal(previews.verify(token), null);
});

test("a link ends with the token of its creator, and stays invalid when the name is reused", async (t) => {
  const { previews, tokens } = await make(t);
  const create = { name: "ci", scope: "exec", max_sandboxes: null } as const;
  tokens.create(create);
  const { token } = previews.create({ ...REQUEST, principal: "ci" });
  assert.ok(previews.verify(token));
  tokens.rotate("ci");
  assert.equal(previews.verify(token), null);
  const second = previews.create({ ...REQUEST, principal: "ci" }).token;
  tokens.revoke("ci");
  assert.equal(previews.verify(second), null);
  tokens.create(create);
  assert.equal(previews.verify(second), null);
});

test("links are valid for the next daemon of the same store, and not for another store", async (t) => {
  const path = join(await tempDir(t), "state.db");
  const open = (at: string): { db: Db; previews: Previews } => {
    const db = new Db(at);
    return { db, previews: new Previews(db, new Tokens(db)) };
  };
  const first = open(path);
  const { token } = first.previews.create(REQUEST);
  first.db.close();
  const again = open(path);
  t.after(() => again.db.close());
  assert.ok(again.previews.verify(token));
  const other = open(join(await tempDir(t), "state.db"));
  t.after(() => other.db.close());
  assert.equal(other.previews.verify(token), null);
});
