// Projects in the database, and the migration of a database from before there were projects.

import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test, type TestContext } from "node:test";
import { Db } from "../../src/store/db.ts";
import { EventLog } from "../../src/store/events.ts";
import { IdempotencyStore } from "../../src/store/idempotency.ts";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { projectOf, shownName, storedName } from "../../src/store/project-names.ts";
import { NO_QUOTA, Projects } from "../../src/store/projects.ts";
import { tablesOf } from "../../src/store/tables.ts";
import { Tokens } from "../../src/store/tokens.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";

async function database(t: TestContext): Promise<Db> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  return db;
}

test("names are stored with their project, and shown without it in that project", () => {
  for (const [name, project, stored] of [
    ["py", "default", "py"],
    ["py", "acme", "acme/py"],
    ["acme/py", "acme", "acme/py"],
    ["default/py", "acme", "py"],
    ["acme/py", "default", "acme/py"],
  ] as const)
    assert.equal(storedName(name, project), stored, `${name} in ${project}`);
  assert.deepEqual([projectOf("py"), projectOf("acme/py")], ["default", "acme"]);
  for (const [stored, project, shown] of [
    ["py", "default", "py"],
    ["py", "acme", "default/py"],
    ["acme/py", "acme", "py"],
    ["acme/py", "default", "acme/py"],
  ] as const) {
    assert.equal(shownName(stored, project), shown);
    assert.equal(storedName(shown, project), stored, "what is shown leads back");
  }
});

test("a project is kept with its quota; the default one cannot be removed", async (t) => {
  const db = await database(t);
  const projects = new Projects(db);
  assert.deepEqual(
    projects.list().map(({ name, quota }) => [name, quota]),
    [["default", NO_QUOTA]],
  );
  projects.create({ name: "acme", sandboxes: 3 });
  assert.throws(() => projects.create({ name: "acme" }), { code: "EXISTS" });
  projects.update("acme", { vcpus: 4, sandboxes: null });
  assert.deepEqual(new Projects(db).get("acme").quota, { ...NO_QUOTA, vcpus: 4 });
  assert.throws(() => projects.get("acmee"), { code: "NOT_FOUND", message: "There is no project acmee." });
  assert.throws(() => projects.remove("default"), { code: "BAD_REQUEST" });
  projects.remove("acme");
  assert.equal(new Projects(db).has("acme"), false);
});

test("tokens have names per project, and are refused when they have expired", async (t) => {
  const db = await database(t);
  const clock = { ms: 1_000_000 };
  const tokens = new Tokens(db, { nowMs: () => clock.ms });
  const facts = { scope: "exec", max_sandboxes: null } as const;
  const first = tokens.create({ name: "ci", ...facts });
  const other = tokens.create({ name: "ci", project: "acme", ...facts, expires_in_secs: 10 });
  assert.deepEqual([first.name, other.name, other.project, other.expires_at_unix], ["ci", "ci", "acme", 1010]);
  assert.throws(() => tokens.create({ name: "ci", project: "acme", ...facts }), { code: "EXISTS" });
  assert.deepEqual(tokens.find(other.token), { name: "acme/ci", project: "acme", scope: "exec", maxSandboxes: null });
  assert.deepEqual(
    tokens.list("acme").map(({ name }) => name),
    ["ci"],
  );
  assert.throws(() => tokens.revoke("ci", "third"), { code: "NOT_FOUND", hint: /^`GET \/v1\/tokens`/ });
  assert.throws(() => tokens.rotate("acme/ci", "default"), { code: "NOT_FOUND" });
  clock.ms += 10_000;
  assert.equal(new Tokens(db, { nowMs: () => clock.ms }).find(other.token), null);
  assert.deepEqual([tokens.find(other.token), tokens.hashOf("acme/ci")], [null, null]);
  assert.ok(tokens.find(first.token));
  assert.deepEqual([tokens.prune(), tokens.list().length], [["acme/ci"], 1]);
});

test("a database of the version before projects keeps all it has, in the project default", async (t) => {
  const path = join(await tempDir(t), "state.db");
  const before = MIGRATIONS.findIndex((sql) => sql.includes("ALTER TABLE ui_sessions ADD COLUMN project"));
  const old = new DatabaseSync(path);
  for (const sql of MIGRATIONS.slice(0, before)) old.exec(sql);
  old.exec(`PRAGMA user_version = ${before}`);
  old.exec(`INSERT INTO tokens (name, scope, hash, created_at) VALUES ('boss', 'admin', x'01', 1), ('ci', 'exec', x'02', 1)`);
  old.exec(
    `INSERT INTO ui_sessions VALUES ('h', 'session', 'boss', x'01', 'admin', 99999999999, 60);
     INSERT INTO sandboxes (id, name, snapshot_id, snapshot_tag, state, pid, start_time, boot_id, memory_mib, vcpus, isolation, kernels, env,
       certificate, metadata, fork_ms, created_at, last_active, created_by, warnings, created_at_ms)
       VALUES ('sb-1', 'web', 'sn-1', 'py', 'suspended', 7, '8', 'b', 256, 2, 'emulated', '["python"]', '{"A":"b"}', '{}', '{"k":"v"}', 1.5, 10,
       20, 'ci', '["w"]', 10500);
     INSERT INTO snapshots (id, tag, status, memory_mib, vcpus, metadata, warnings, created_by, created_at)
       VALUES ('sn-1', 'py', 'ready', 256, 2, '{}', '[]', 'boss', 5);
     INSERT INTO workspaces (id, name, source_snapshot_tag, created_at, last_active, warnings, cpu_limit) VALUES ('ws-1', 'desk', 'py', 1, 2, '[]', 0.5);
     INSERT INTO idempotency VALUES ('ci', 'k', x'0a', 201, '{}', 9999999999);
     INSERT INTO events (time, type, sandbox) VALUES (1, 'daemon.started', NULL), (2, 'sandbox.created', 'sb-1')`,
  );
  old.close();
  const db = new Db(path);
  t.after(() => db.close());
  const scopes = db.all("SELECT name, project, scope, expires_at FROM tokens ORDER BY name").map((row) => Object.values(row));
  assert.deepEqual(scopes, [
    ["boss", "default", "operator", null],
    ["ci", "default", "exec", null],
  ]);
  assert.deepEqual({ ...db.get("SELECT project, scope FROM ui_sessions") }, { project: "default", scope: "operator" });
  const tables = tablesOf(db);
  const [sandbox] = tables.sandboxes.all();
  const { project, name, kernels, env, metadata, warnings, vcpus, created_at_ms: ms, suspended_ttl_secs: ttl } = sandbox ?? assert.fail();
  assert.deepEqual(
    [project, name, kernels, env, metadata, warnings, vcpus, ms, ttl],
    ["default", "web", ["python"], { A: "b" }, { k: "v" }, ["w"], 2, 10_500, null],
  );
  const snapshot = tables.snapshots.get("sn-1");
  assert.deepEqual([snapshot?.project, snapshot?.visibility, snapshot?.expires_at], ["default", "private", null]);
  const workspace = tables.workspaces.get("ws-1");
  assert.deepEqual([workspace?.project, workspace?.name, workspace?.cpu_limit], ["default", "desk", 0.5]);
  assert.equal(new IdempotencyStore(db).find({ project: "default", principal: "ci" }, "k")?.answer?.status, 201);
  const events = new EventLog(db);
  assert.deepEqual(
    events.list("default").map(({ type }) => type),
    ["daemon.started", "sandbox.created"],
  );
  assert.deepEqual(
    events.list("acme").map(({ type }) => type),
    ["daemon.started"],
  );
  // names are unique in a project, and only there
  if (!sandbox) assert.fail();
  assert.throws(() => tables.sandboxes.insert({ ...sandbox, id: "sb-2" }), /UNIQUE/);
  tables.sandboxes.insert({ ...sandbox, id: "sb-2", project: "acme" });
  assert.deepEqual(new Projects(db).get("default").quota, NO_QUOTA);
});
