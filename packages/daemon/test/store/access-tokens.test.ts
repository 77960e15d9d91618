// Access tokens of one sandbox: derived from the daemon's key, and cached for lookups.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { AccessTokens } from "../../src/store/access-tokens.ts";
import { Db } from "../../src/store/db.ts";
import { Tokens } from "../../src/store/tokens.ts";
import { tempDir } from "../helpers/serve.ts";
import type { TestContext } from "node:test";

async function fixture(t: TestContext): Promise<{ db: Db; tokens: Tokens; access: AccessTokens }> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  const tokens = new Tokens(db);
  return { db, tokens, access: new AccessTokens(db, tokens) };
}

const sandboxes = (count: number): { id: string; created_by: string }[] =>
  Array.from({ length: count }, (_, at) => ({ id: `sb-${at}`, created_by: "ci" }));

function insertSandbox(db: Db, id: string): void {
  const columns = db.all("SELECT name, type, \"notnull\" AS needed, dflt_value AS fallback FROM pragma_table_info('sandboxes')");
  const needed = columns.filter((column) => column["needed"] === 1 && column["fallback"] === null && column["name"] !== "id");
  const names = ["id", ...needed.map((column) => String(column["name"]))];
  const values = needed.map(({ type }) => (type === "TEXT" ? "" : 0));
  db.run(`INSERT INTO sandboxes (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`, id, ...values);
}

test("a token opens one sandbox for one use, and identifies it among others", async (t) => {
  const { access } = await fixture(t);
  const all = sandboxes(3);
  const [first, second] = all as [(typeof all)[0], (typeof all)[0]];
  const token = access.of(second, "envd");
  assert.ok(access.opens(token, second, "envd"));
  assert.ok(!access.opens(token, second, "traffic"));
  assert.ok(!access.opens(token, first, "envd"));
  assert.equal(access.find(token, all, "envd"), second);
  assert.equal(access.find(token, all, "traffic"), undefined);
  assert.equal(access.find("", all, "envd"), undefined);
});

test("a token ends with its creator's token, also one that was used before", async (t) => {
  const { tokens, access } = await fixture(t);
  const [sandbox] = sandboxes(1) as [{ id: string; created_by: string }];
  const unmade = access.of(sandbox, "envd");
  tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const first = access.of(sandbox, "envd");
  tokens.rotate("ci");
  const second = access.of(sandbox, "envd");
  assert.equal(new Set([unmade, first, second]).size, 3);
  assert.equal(access.find(first, [sandbox], "envd"), undefined);
  tokens.revoke("ci");
  assert.ok(!access.opens(second, sandbox, "envd"));
});

test("a search derives each token once", async (t) => {
  const { tokens, access, db } = await fixture(t);
  for (let at = 0; at < 20; at++) tokens.create({ name: `t${at}`, scope: "exec", max_sandboxes: null });
  const all = sandboxes(1000);
  const costOf = (work: () => void): number => {
    const { user, system } = process.cpuUsage();
    work();
    const spent = process.cpuUsage({ user, system });
    return spent.user + spent.system;
  };
  // the minimum of several runs excludes the load of other processes
  const least = (work: () => () => void): number => Math.min(...Array.from({ length: 15 }, () => costOf(work())));
  const first = least(() => {
    const fresh = new AccessTokens(db, tokens);
    return () => void fresh.find("no", all, "envd");
  });
  access.find("no", all, "envd");
  const again = least(() => () => void access.find("no", all, "envd"));
  assert.ok(again * 4 < first, `${again} µs, at first ${first} µs`);
});

test("the tokens of one sandbox can be replaced, for any creator and permanently", async (t) => {
  const { db, tokens, access } = await fixture(t);
  const [sandbox, other] = [
    { id: "sb-0", created_by: "local" },
    { id: "sb-1", created_by: "local" },
  ] as const;
  // the start deletes the salts of sandboxes that do not exist
  insertSandbox(db, sandbox.id);
  const before = [access.of(sandbox, "envd"), access.of(sandbox, "traffic"), access.of(other, "envd")];
  access.rotate(sandbox.id);
  const after = [access.of(sandbox, "envd"), access.of(sandbox, "traffic"), access.of(other, "envd")];
  assert.deepEqual(
    after.map((token, at) => token === before[at]),
    [false, false, true],
  );
  assert.ok(!access.opens(before[0] ?? "", sandbox, "envd"));
  assert.equal(new AccessTokens(db, tokens).of(sandbox, "envd"), after[0], "also after a restart");
  access.rotate(sandbox.id);
  assert.notEqual(access.of(sandbox, "envd"), after[0]);
});
