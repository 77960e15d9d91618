// The end of sandboxes on a full disk: visible at once, written later.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { Quotas } from "../../src/service/quotas.ts";
import { Projects } from "../../src/store/projects.ts";
import { Registry } from "../../src/service/registry.ts";
import { Sandboxes } from "../../src/service/sandboxes.ts";
import { Db } from "../../src/store/db.ts";
import { EventLog } from "../../src/store/events.ts";
import { tablesOf } from "../../src/store/tables.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";
import type { TestContext } from "node:test";
import type { Caller } from "../../src/service/caller.ts";
import type { Core } from "../../src/service/core.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { SandboxRow } from "../../src/store/tables.ts";

const CALLER = { principal: "local", project: "default" } as Caller;

class FullDb extends Db {
  isFull = false;

  override run(...args: Parameters<Db["run"]>): number {
    if (this.isFull) throw new ForkdError("NO_SPACE", "Cannot store the change: the disk is full.");
    return super.run(...args);
  }
}

class FakeSandbox {
  readonly id: string;
  alive = true;
  exit: Sandbox["exit"];
  isRunning = true;
  readonly clock = { rate: undefined };
  readonly branching = { run: async <V>(work: () => Promise<V>): Promise<V> => work() };

  constructor(id: string) {
    this.id = id;
  }

  readonly vm = { startedBy: "restore" };

  async pause(): Promise<void> {
    this.isRunning = false;
  }

  async resume(): Promise<void> {
    this.isRunning = true;
  }

  async kill(): Promise<void> {
    this.alive = false;
  }

  async setClock(): Promise<void> {}
}

type Fixture = { db: FullDb; path: string; sandboxes: Sandboxes; events: EventLog; fakes: FakeSandbox[] };

const VIEWER = { project: "default" };

async function fixture(t: TestContext): Promise<Fixture> {
  const path = join(await tempDir(t), "state.db");
  const db = new FullDb(path);
  const tables = tablesOf(db);
  const events = new EventLog(db);
  const registry = new Registry({ db, tables, events, quotas: new Quotas(db, new Projects(db)) });
  const core = { db, tables, events, log: { error: () => undefined } } as unknown as Core;
  const snapshots = { forkable: async () => assert.fail(), collectAfter: async () => undefined };
  const sandboxes = new Sandboxes(core, { registry, snapshots, limits: {}, wake: assert.fail } as unknown as ConstructorParameters<
    typeof Sandboxes
  >[1]);
  const fakes = ["sb-a", "sb-b"].map((id) => new FakeSandbox(id));
  const pairs = fakes.map((sandbox) => ({ row: rowOf(sandbox.id), sandbox: sandbox as unknown as Sandbox }));
  registry.insert(pairs, { type: "sandbox.created" }, () => undefined);
  return { db, path, sandboxes, events, fakes };
}

function rowOf(id: string): SandboxRow {
  const nothing = {
    name: null,
    reason: null,
    disk_mib: null,
    expires_at: null,
    ttl_secs: null,
    idle_timeout_secs: null,
    suspended_ttl_secs: null,
    last_branch_path: null,
  };
  const limits = { memory_limit_mib: null, cpu_limit: null, cpu_weight: null, pids_limit: null, io_limit_mbps: null };
  return {
    ...nothing,
    ...limits,
    id,
    project: "default",
    snapshot_id: "sn-1",
    snapshot_tag: "python",
    state: "running",
    pid: 1,
    start_time: "1",
    boot_id: "b",
    memory_mib: 256,
    vcpus: 1,
    isolation: "emulated",
    confinement: "namespaces",
    kernels: [],
    env: {},
    shares: [],
    certificate: {} as SandboxRow["certificate"],
    metadata: {},
    fork_ms: 1,
    created_at: 1,
    created_at_ms: 1000,
    last_active: 1,
    on_timeout: "end",
    auto_resume: 0,
    keep_memory: 1,
    branch_count: 0,
    network: { mode: "none", allow: [], egressLimit: null } as unknown as SandboxRow["network"],
    egress_bytes: 0,
    created_by: "local",
    warnings: [],
  };
}

/** Rows that the next daemon would read */
function stored(path: string): string[] {
  const db = new Db(path);
  try {
    return tablesOf(db)
      .sandboxes.all()
      .map(({ id, state }) => `${id} ${state}`);
  } finally {
    db.close();
  }
}

test("a VMM that ends on a full disk is an ended sandbox, and can be removed", async (t) => {
  const { db, path, sandboxes, events, fakes } = await fixture(t);
  const [first] = fakes;
  assert.ok(first);
  db.isFull = true;
  first.alive = false;
  first.exit = { code: null, signal: "SIGBUS", log: "", console: "", failure: null, isOutOfSpace: true };
  sandboxes.gone(first as unknown as Sandbox);
  const { state, reason } = sandboxes.get("sb-a", VIEWER);
  assert.equal(state, "ended");
  assert.match(reason ?? "", /the disk of FORKD_HOME is full/);
  await sandboxes.remove("sb-a", CALLER);
  assert.throws(() => sandboxes.get("sb-a", VIEWER), { code: "NOT_FOUND" });
  db.isFull = false;
  db.transaction(() => undefined);
  assert.deepEqual(
    events.list("default").map(({ type, sandbox }) => `${type} ${sandbox}`),
    ["sandbox.created sb-a", "sandbox.created sb-b", "sandbox.ended sb-a", "sandbox.deleted sb-a"],
    "in order",
  );
  db.close();
  assert.deepEqual(stored(path), ["sb-b running"]);
});

test("all sandboxes can be ended on a full disk, and pending writes are done before the database closes", async (t) => {
  const { db, path, sandboxes, fakes } = await fixture(t);
  db.isFull = true;
  assert.deepEqual(await sandboxes.removeMany("all", CALLER), ["sb-a", "sb-b"]);
  assert.deepEqual(sandboxes.list({ state: ["running", "ended"] }, VIEWER).items, []);
  assert.deepEqual(
    fakes.map(({ alive }) => alive),
    [false, false],
  );
  db.isFull = false;
  db.close();
  assert.deepEqual(stored(path), []);
});

test("a daemon that ends on a full disk keeps its earlier writes", async (t) => {
  const { db, path, sandboxes } = await fixture(t);
  db.isFull = true;
  await sandboxes.remove("sb-a", CALLER);
  db.close();
  assert.deepEqual(stored(path), ["sb-a running", "sb-b running"]);
});

test("a pause that cannot be journaled is reverted; a resume needs no disk", async (t) => {
  const { db, path, sandboxes, fakes } = await fixture(t);
  const [first, second] = fakes;
  assert.ok(first && second);
  await sandboxes.pause("sb-b", CALLER);
  db.isFull = true;
  await assert.rejects(sandboxes.pause("sb-a", CALLER), { code: "NO_SPACE" });
  assert.deepEqual([first.isRunning, sandboxes.get("sb-a", VIEWER).state], [true, "running"]);
  assert.equal((await sandboxes.resume("sb-b", CALLER)).state, "running");
  assert.equal(second.isRunning, true);
  db.isFull = false;
  db.close();
  assert.deepEqual(stored(path), ["sb-a running", "sb-b running"]);
});
