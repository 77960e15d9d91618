// Limits of suspended and ended sandboxes, and of snapshots.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { Limits } from "../../src/service/limits.ts";
import { Images } from "../../src/service/images.ts";
import { Quotas } from "../../src/service/quotas.ts";
import { Projects } from "../../src/store/projects.ts";
import { Registry } from "../../src/service/registry.ts";
import { Snapshots } from "../../src/service/snapshots.ts";
import { Db } from "../../src/store/db.ts";
import { EventLog } from "../../src/store/events.ts";
import { tablesOf, type SandboxRow } from "../../src/store/tables.ts";
import { CALLER, World } from "./helpers/world.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";
import type { Core } from "../../src/service/core.ts";
import type { Lineage } from "../../src/service/lineage.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";

const VIEWER = { project: "default" };

async function database(t: TestContext): Promise<Db> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  return db;
}

function asleep(counts: Record<string, number>): Registry {
  const lasting = Object.entries(counts).flatMap(([principal, n]) =>
    Array.from({ length: n }, () => ({ row: { state: "suspended", created_by: principal } })),
  );
  return { lasting, live: [] } as unknown as Registry;
}

function limits(registry: Registry, maxSuspended: number): Limits {
  const settings = { maxSuspended } as Core["settings"];
  const quotas = { foresee: () => undefined } as unknown as Core["quotas"];
  return new Limits({ settings, quotas, maxSandboxesOf: (principal) => (principal === "small" ? 1 : null) }, registry);
}

test("suspended sandboxes have a limit, and those of a token too", () => {
  const small = { created_by: "small" } as SandboxRow;
  const local = { created_by: "local" } as SandboxRow;
  limits(asleep({ small: 9, local: 20 }), 30).checkSuspended(small);
  assert.throws(() => limits(asleep({ small: 10 }), 1000).checkSuspended(small), {
    code: "LIMIT_REACHED",
    message: /Cannot suspend: 1 suspended sandboxes of token small/,
  });
  limits(asleep({ small: 10, local: 20 }), 31).checkSuspended(local);
  assert.throws(() => limits(asleep({ small: 10, local: 20 }), 30).checkSuspended(local), { code: "LIMIT_REACHED" });
});

test("a sandbox that resumes on its use counts against the limit of its creator's token", async () => {
  await using world = await World.make();
  Object.assign(world.store.core, { maxSandboxesOf: (principal: string) => (principal === "small" ? 1 : null) });
  await world.create("py");
  const small = { ...CALLER, principal: "small", maxSandboxes: 1 };
  const first = await world.fork("py", small);
  world.store.registry.change(world.store.registry.get(first.id, small), { auto_resume: 1 });
  await world.suspension.suspend(first.id, small);
  const second = await world.fork("py", small);
  // the use has no caller: traffic to a public server needs no token
  const use = async (): Promise<string> => world.sandboxes.use(first.id, small, async ({ id }) => id);
  await assert.rejects(use(), { code: "LIMIT_REACHED", message: /1 sandboxes of token small are needed and 0 are free/ });
  assert.equal(world.store.registry.get(first.id, small).row.state, "suspended");
  await world.sandboxes.remove(second.id, small);
  assert.equal(await use(), first.id);
});

test("the newest ended sandboxes are kept, separate from running ones", async (t) => {
  const db = await database(t);
  const parts = { db, tables: tablesOf(db), events: new EventLog(db), quotas: new Quotas(db, new Projects(db)) };
  const registry = new Registry(parts);
  const insert = (id: string): void => {
    registry.insert([{ row: rowOf(id), sandbox: { id } as Sandbox }], { type: "sandbox.created" }, () => undefined);
  };
  for (let at = 0; at < 1200; at++) {
    insert(`sb-${at}`);
    registry.record(registry.get(`sb-${at}`, VIEWER), { state: at % 2 ? "ended" : "lost", name: null, last_active: at });
  }
  insert("sb-alive");
  assert.deepEqual(
    registry.lasting.map(({ row }) => row.id),
    ["sb-alive"],
  );
  assert.deepEqual([registry.ended.length, registry.entries.length], [1000, 1001]);
  assert.equal(registry.byId("sb-199"), undefined);
  assert.equal(registry.get("sb-200", VIEWER).row.state, "lost");
  db.flush();
  const again = new Registry(parts);
  assert.deepEqual([again.ended.length, again.lasting.length, again.ended[0]?.row.id], [1000, 1, "sb-200"]);
});

test("a token's snapshots are counted, without automatic ones", async (t) => {
  const db = await database(t);
  const tables = tablesOf(db);
  const runtime = { snapshots: { tagged: async () => undefined } };
  const log = { warn: () => undefined };
  const core = {
    db,
    tables,
    runtime,
    log,
    events: new EventLog(db),
    quotas: new Quotas(db, new Projects(db)),
    settings: { maxSnapshots: 3 },
  } as unknown as Core;
  const snapshots = new Snapshots(core, { lineage: {} as Lineage, images: new Images(core) });
  const facts = { memory_mib: 256, vcpus: 1, status: "ready" } as const;
  for (const [tag, ephemeral, principal] of [
    ["a", 0, "ci"],
    ["b", 0, "ci"],
    ["c", 1, "ci"],
    ["d", 0, "local"],
  ] as const)
    tables.snapshots.insert(snapshots.newRow({ tag, ephemeral, ...facts }, { principal, ...VIEWER }));
  const make = async (tag: string, principal: string, ephemeral = 0): Promise<unknown> => {
    const caller = { principal, project: "default", maxSandboxes: null, requestId: "r", signal: new AbortController().signal };
    const row = snapshots.newRow({ tag, memory_mib: 256, vcpus: 1, ephemeral }, caller);
    return snapshots.writing(row, caller, async () => {
      throw new ForkdError("BRANCH_FAILED", "it came so far");
    });
  };
  await assert.rejects(make("e", "ci"), { code: "BRANCH_FAILED" });
  tables.snapshots.insert(snapshots.newRow({ tag: "f", ...facts }, { principal: "ci", ...VIEWER }));
  await assert.rejects(make("g", "ci"), { code: "LIMIT_REACHED", message: /token ci has made 3 already/ });
  await assert.rejects(make("g", "ci", 1), { code: "BRANCH_FAILED" });
  await assert.rejects(make("g", "other"), { code: "BRANCH_FAILED" });
  await assert.rejects(make("g", "local"), { code: "BRANCH_FAILED" });
});

function rowOf(id: string): SandboxRow {
  return {
    id,
    name: null,
    project: "default",
    snapshot_id: "sn-1",
    snapshot_tag: "base",
    state: "running",
    reason: null,
    pid: 1,
    start_time: "1",
    boot_id: "b",
    memory_mib: 256,
    vcpus: 1,
    disk_mib: null,
    isolation: "emulated",
    confinement: "none",
    kernels: [],
    env: {},
    shares: [],
    certificate: {} as SandboxRow["certificate"],
    metadata: {},
    fork_ms: 1,
    created_at: 0,
    created_at_ms: 0,
    last_active: 5000,
    expires_at: null,
    ttl_secs: null,
    idle_timeout_secs: null,
    suspended_ttl_secs: null,
    on_timeout: "end",
    auto_resume: 0,
    keep_memory: 1,
    branch_count: 0,
    last_branch_path: null,
    network: { mode: "none" } as SandboxRow["network"],
    egress_bytes: 0,
    created_by: "ci",
    warnings: [],
    memory_limit_mib: null,
    cpu_limit: null,
    cpu_weight: null,
    pids_limit: null,
    io_limit_mbps: null,
  };
}
