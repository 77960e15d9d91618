// The database: one owner, and atomic transactions.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { Db } from "../../src/store/db.ts";
import { EventLog } from "../../src/store/events.ts";
import { Table } from "../../src/store/rows.ts";
import type { WorkspaceRow } from "../../src/store/tables.ts";

let dir: string;
let path: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-db-"));
  path = join(dir, "state.db");
});

afterEach(async () => rm(dir, { recursive: true, force: true }));

test("a second open is refused while the first is open", () => {
  const first = new Db(path);
  assert.throws(() => new Db(path), { code: "DAEMON_RUNNING" });
  first.close();
  new Db(path).close();
});

test("a database of a newer version is not changed", () => {
  const db = new Db(path);
  db.exec("PRAGMA user_version = 99");
  db.close();
  assert.throws(() => new Db(path), { code: "STATE_TOO_NEW" });
});

test("a failed transaction changes nothing, and a nested one is part of the outer one", () => {
  const db = new Db(path);
  const meta = (): unknown[] => db.all("SELECT key FROM meta ORDER BY key").map((row) => row["key"]);
  const write = (key: string): void => void db.run("INSERT INTO meta (key, value) VALUES (?, 'x')", key);
  assert.throws(() =>
    db.transaction(() => {
      write("a");
      db.transaction(() => write("b"));
      throw new Error("no");
    }),
  );
  assert.deepEqual(meta(), []);
  db.transaction(() => {
    write("c");
    db.transaction(() => write("d"));
  });
  db.durably(() => write("e"));
  db.close();
  const again = new Db(path);
  assert.deepEqual(
    again.all("SELECT key FROM meta ORDER BY key").map((row) => row["key"]),
    ["c", "d", "e"],
  );
  again.close();
});

test("rows are read as they were written", () => {
  const db = new Db(path);
  const table = new Table<WorkspaceRow>(db, "workspaces", { key: "id", json: ["warnings"] });
  const row: WorkspaceRow = {
    id: "ws-1",
    project: "default",
    name: "desk",
    source_snapshot_tag: "t",
    state_tag: null,
    state_id: null,
    sandbox_id: null,
    created_at: 1,
    last_active: 2,
    memory_limit_mib: null,
    cpu_limit: null,
    cpu_weight: null,
    pids_limit: null,
    io_limit_mbps: null,
    warnings: ["'; DROP"],
  };
  table.insert(row);
  assert.deepEqual({ ...table.get("ws-1") }, row);
  table.update("ws-1", { warnings: [], sandbox_id: "sb-1" });
  assert.deepEqual({ ...table.where("name", "desk")[0] }, { ...row, warnings: [], sandbox_id: "sb-1" });
  assert.equal(table.delete("ws-1"), true);
  assert.equal(table.delete("ws-1"), false);
  assert.deepEqual(table.all(), []);
  db.close();
});

test("events keep their order across a restart, and those of a reverted transaction are absent", async () => {
  const db = new Db(path);
  const events = new EventLog(db);
  let woken = 0;
  const unsubscribe = events.subscribe(() => woken++);
  events.append({ type: "sandbox.created", project: "default", sandbox: "sb-1", metadata: { a: "b" } });
  assert.throws(() =>
    db.transaction(() => {
      events.append({ type: "sandbox.deleted", project: "default", sandbox: "sb-1" });
      throw new Error("no");
    }),
  );
  events.append({ type: "sandbox.ended", project: "default", sandbox: "sb-1", reason: "why" });
  await Promise.resolve();
  assert.ok(woken >= 2);
  unsubscribe();
  db.close();
  const again = new Db(path);
  const later = new EventLog(again);
  later.append({ type: "daemon.started", project: null });
  const all = later.list("default");
  assert.deepEqual(
    all.map(({ type }) => type),
    ["sandbox.created", "sandbox.ended", "daemon.started"],
  );
  assert.deepEqual(all[0]?.metadata, { a: "b" });
  const ids = all.map(({ id }) => id);
  assert.deepEqual(
    ids,
    ids.toSorted((a, b) => a - b),
  );
  assert.deepEqual(
    later.list("default", { since: ids[0], limit: 1 }).map(({ type }) => type),
    ["sandbox.ended"],
  );
  again.close();
});
