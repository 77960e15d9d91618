// Moves and cordon in the store: what a restart of the daemon must keep.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { AccessTokens } from "../../src/store/access-tokens.ts";
import { Cordon } from "../../src/store/cordon.ts";
import { Db } from "../../src/store/db.ts";
import { MovedAccess } from "../../src/store/moved-access.ts";
import { MoveStore } from "../../src/store/moves.ts";
import { Previews } from "../../src/store/previews.ts";
import { Tokens } from "../../src/store/tokens.ts";

const ID = "sb-aaaa222233334444";
const LEFT = { id: ID, project: "acme", name: "web", node: "bbbb", record: {}, at: 1 };

async function path(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-moves-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return join(dir, "state.db");
}

function reopened(db: Db, at: string): Db {
  db.close();
  return new Db(at);
}

test("a cordon is kept over a restart, and so is its end", async (t) => {
  const at = await path(t);
  let db = new Db(at);
  const cordon = new Cordon(db);
  assert.equal(cordon.isSet, false);
  cordon.set(true);
  cordon.set(true);
  db = reopened(db, at);
  assert.equal(new Cordon(db).isSet, true);
  new Cordon(db).set(false);
  db = reopened(db, at);
  const last = new Cordon(db);
  assert.equal(last.isSet, false);
  last.isLeaving = true;
  assert.equal(last.isSet, true, "a daemon that ends takes no forks");
  db = reopened(db, at);
  assert.equal(new Cordon(db).isSet, false, "and the next one does");
  db.close();
});

test("where a sandbox went is found by its id and by its name in its project, also after a restart", async (t) => {
  const at = await path(t);
  let db = new Db(at);
  new MoveStore(db).put("left", LEFT);
  db = reopened(db, at);
  const store = new MoveStore(db);
  assert.equal(store.left(ID, "acme")?.node, "bbbb");
  assert.equal(store.left("web", "acme")?.node, "bbbb");
  assert.equal(store.left("web", "other"), undefined);
  // it comes back: until it is this node's again, requests still go to the other node
  store.put("arriving", { ...LEFT, record: { any: "thing" } });
  assert.equal(store.left(ID, "acme")?.node, "bbbb");
  assert.deepEqual(store.get("arriving", ID)?.record, { any: "thing" });
  store.delete("left", ID);
  assert.equal(store.left(ID, "acme"), undefined);
  assert.equal(store.left("web", "acme"), undefined);
  assert.equal(new MoveStore(db).left(ID, "acme"), undefined);
  db.close();
});

test("access tokens and preview links stay valid on the next node, until the creator's token or they are replaced", async (t) => {
  const [one, two] = [new Db(await path(t)), new Db(await path(t))];
  t.after(() => {
    one.close();
    two.close();
  });
  const sandbox = { id: ID, created_by: "ann" };
  const partsOf = (db: Db): { tokens: Tokens; moved: MovedAccess; access: AccessTokens; previews: Previews } => {
    const tokens = new Tokens(db);
    tokens.noteOfCluster({ name: "ann", stamp: "first", since: 1, max_sandboxes: null });
    const moved = new MovedAccess(db);
    return { tokens, moved, access: new AccessTokens(db, tokens, moved), previews: new Previews(db, tokens, { moved }) };
  };
  const [from, to] = [partsOf(one), partsOf(two)];
  const envd = from.access.of(sandbox, "envd");
  const { token: link } = from.previews.create({ sandbox: ID, port: 80, expiresInSecs: 60, principal: "ann" });
  assert.equal(to.access.opens(envd, sandbox, "envd"), false, "each node has keys of its own");
  assert.equal(to.previews.verify(link), null);

  to.moved.put(ID, { ...from.access.accessOf(sandbox), preview: from.previews.keyOf(ID) });
  assert.equal(to.access.of(sandbox, "envd"), envd);
  assert.ok(to.access.opens(from.access.of(sandbox, "traffic"), sandbox, "traffic"));
  assert.equal(to.access.find(envd, [sandbox], "envd"), sandbox);
  assert.equal(to.previews.verify(link)?.grant.port, 80);
  // links of other sandboxes have other keys
  const other = from.previews.create({ sandbox: "sb-aaaa222233335555", port: 80, expiresInSecs: 60, principal: "ann" });
  assert.equal(to.previews.verify(other.token), null);

  to.tokens.noteOfCluster({ name: "ann", stamp: "second", since: 2, max_sandboxes: null });
  assert.equal(to.access.opens(envd, sandbox, "envd"), false);
  assert.equal(to.previews.verify(link), null);
  from.access.rotate(ID);
  assert.equal(from.access.opens(envd, sandbox, "envd"), false);
});
