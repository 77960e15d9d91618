import assert from "node:assert/strict";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { Db } from "../../src/store/db.ts";
import { Tokens } from "../../src/store/tokens.ts";
import { pageKeyOf, UiSessions } from "../../src/store/ui-sessions.ts";
import { tempDir } from "../helpers/serve.ts";

const START_MS = 1_800_000_000_000;

type Made = { db: Db; tokens: Tokens; sessions: UiSessions; clock: { ms: number } };

async function make(t: TestContext): Promise<Made> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  const clock = { ms: START_MS };
  const tokens = new Tokens(db);
  return { db, tokens, clock, sessions: new UiSessions(db, tokens, { nowMs: () => clock.ms }) };
}

function opened(sessions: UiSessions, principal = "local"): string {
  const made = sessions.open(sessions.createLink({ principal, project: "default", scope: "exec" }, 600).code);
  assert.ok(made);
  return made.token;
}

test("a link becomes a session once", async (t) => {
  const { sessions } = await make(t);
  const { code } = sessions.createLink({ principal: "local", project: "default", scope: "exec" }, 600);
  assert.equal(sessions.find(code), null, "a link is no session");
  const made = sessions.open(code);
  assert.equal(made?.session.scope, "exec");
  assert.equal(sessions.open(code), null);
  assert.equal(sessions.open(made?.token ?? ""), null, "a session is no link");
  assert.equal(sessions.find(made?.token ?? "")?.principal, "local");
});

test("links expire after two minutes, sessions after their time", async (t) => {
  const { sessions, clock } = await make(t);
  const { code, expiresAtUnix } = sessions.createLink({ principal: "local", project: "default", scope: "read" }, 600);
  assert.equal(expiresAtUnix, START_MS / 1000 + 120);
  const token = opened(sessions);
  clock.ms += 121_000;
  assert.equal(sessions.open(code), null);
  assert.ok(sessions.find(token));
  clock.ms += 600_000;
  assert.equal(sessions.find(token), null);
});

test("sessions survive a restart; neither their values nor those of links are stored", async (t) => {
  const { sessions, db, tokens, clock } = await make(t);
  const token = opened(sessions);
  const { code } = sessions.createLink({ principal: "local", project: "default", scope: "read" }, 600);
  const stored = JSON.stringify(db.all("SELECT * FROM ui_sessions"));
  for (const secret of [token, code]) assert.ok(!stored.includes(secret.slice(4)));
  const next = new UiSessions(db, tokens, { nowMs: () => clock.ms });
  assert.ok(next.find(token));
  assert.ok(next.open(code));
  clock.ms += 601_000;
  assert.ok(new UiSessions(db, tokens, { nowMs: () => clock.ms }));
  assert.deepEqual(db.all("SELECT * FROM ui_sessions"), [], "expired ones are removed");
});

test("a revoked or rotated token ends its sessions and links", async (t) => {
  const { sessions, tokens } = await make(t);
  for (const name of ["a", "b"]) tokens.create({ name, scope: "exec", max_sandboxes: null });
  const [a, b] = [opened(sessions, "a"), opened(sessions, "b")];
  const { code } = sessions.createLink({ principal: "a", project: "default", scope: "exec" }, 600);
  tokens.revoke("a");
  assert.equal(sessions.find(a), null);
  assert.equal(sessions.open(code), null);
  assert.ok(sessions.find(b));
  tokens.rotate("b");
  assert.equal(sessions.find(b), null);
  // a new token of the same name is another one
  tokens.create({ name: "a", scope: "exec", max_sandboxes: null });
  assert.equal(sessions.find(a), null);
});

test("each principal has a bounded number of links and sessions; the oldest end", async (t) => {
  const { sessions, db } = await make(t);
  const other = opened(sessions, "token-file");
  const links = Array.from({ length: 20 }, () => sessions.createLink({ principal: "local", project: "default", scope: "read" }, 600).code);
  assert.equal(sessions.open(links[0] ?? ""), null);
  assert.ok(sessions.open(links[19] ?? ""));
  const tokens = Array.from({ length: 40 }, () => opened(sessions));
  assert.equal(sessions.find(tokens[0] ?? ""), null);
  assert.ok(sessions.find(tokens[39] ?? ""));
  assert.ok(sessions.find(other), "another principal's stay");
  assert.ok(db.all("SELECT * FROM ui_sessions").length <= 16 + 32 + 1);
});

test("logging out ends one session, or all of them and the links", async (t) => {
  const { sessions } = await make(t);
  const [one, two] = [opened(sessions), opened(sessions)];
  sessions.end(sessions.find(one) ?? { id: "" });
  assert.equal(sessions.find(one), null);
  assert.ok(sessions.find(two));
  const { code } = sessions.createLink({ principal: "local", project: "default", scope: "read" }, 600);
  assert.equal(sessions.endAll("default").length, 1);
  assert.equal(sessions.find(two), null);
  assert.equal(sessions.open(code), null);
});

test("the page's key follows from the session and does not reveal it", async (t) => {
  const { sessions } = await make(t);
  const token = opened(sessions);
  assert.match(pageKeyOf(token), /^[0-9a-f]{40}$/);
  assert.equal(pageKeyOf(token), pageKeyOf(token));
  assert.notEqual(pageKeyOf(token), pageKeyOf(opened(sessions)));
  assert.ok(!token.includes(pageKeyOf(token)));
});
