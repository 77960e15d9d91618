// The audit log: order, bounds, privacy, and external rotation.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rename, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { AuditLog } from "../../src/observe/audit.ts";
import { createLog } from "../../src/observe/log.ts";
import type { TestContext } from "node:test";
import type { AuditEntry } from "../../src/observe/audit.ts";

function entry(id: number): AuditEntry {
  return {
    request_id: String(id),
    principal: "local",
    maker: null,
    remote: "unix",
    method: "GET",
    path: "/",
    sandbox: null,
    snapshot: null,
    status: 200,
    latency_us: 1,
    user_agent: null,
  };
}

async function fixture(t: TestContext): Promise<{ path: string; dir: string; log: ReturnType<typeof createLog>; logged: string[] }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-audit-"));
  t.after(() => rm(dir, { recursive: true }));
  const logged: string[] = [];
  return { dir, path: join(dir, "audit.log"), log: createLog("info", { write: (line: string) => void logged.push(line) }), logged };
}

async function idsIn(path: string): Promise<string[]> {
  const lines = (await readFile(path, "utf8")).trim().split("\n");
  return lines.map((line) => (JSON.parse(line) as AuditEntry).request_id);
}

test("lines are appended in order and complete after closing", async (t) => {
  const { path, log } = await fixture(t);
  for (const from of [0, 500]) {
    await using audit = await AuditLog.open(path, log);
    for (let i = from; i < from + 500; i++) {
      audit.write(entry(i));
      if (i % 100 === 0) await audit.flush();
    }
  }
  assert.deepEqual(
    await idsIn(path),
    Array.from({ length: 1000 }, (_, i) => String(i)),
  );
  assert.equal((await stat(path)).mode & 0o777, 0o600);
});

test("after the file was moved, reopening continues in a new one without loss", async (t) => {
  const { path, dir, log } = await fixture(t);
  await using audit = await AuditLog.open(path, log);
  audit.write(entry(1));
  await audit.flush();
  await rename(path, join(dir, "audit.log.1"));
  audit.write(entry(2));
  await audit.reopen();
  audit.write(entry(3));
  await audit.flush();
  assert.deepEqual([...(await idsIn(join(dir, "audit.log.1"))), ...(await idsIn(path))], ["1", "2", "3"]);
});

test("lines beyond the queue's limit are counted, and the count is written", async (t) => {
  const { path, log } = await fixture(t);
  await using audit = await AuditLog.open(path, log, { maxQueued: 3 });
  for (let i = 0; i < 10; i++) audit.write(entry(i));
  await audit.flush();
  const lines = (await readFile(path, "utf8")).trim().split("\n");
  assert.equal(lines.length, 4);
  assert.equal((JSON.parse(lines.find((line) => line.includes("lost")) ?? "") as { lost: number }).lost, 7);
});

test("a failing disk is reported once", async (t) => {
  const { log, logged } = await fixture(t);
  await using audit = await AuditLog.open("/dev/full", log);
  for (let i = 0; i < 5; i++) {
    audit.write(entry(i));
    await audit.flush();
  }
  assert.equal(logged.length, 1);
  assert.match(logged[0] ?? "", /cannot write the audit log/);
});

test("a file that cannot be opened is an invalid setting", async (t) => {
  const { dir, log } = await fixture(t);
  await assert.rejects(AuditLog.open(join(dir, "none", "audit.log"), log), { code: "BAD_CONFIG" });
});

test("the fields of a line are truncated", async (t) => {
  const { path, log } = await fixture(t);
  const long = "x".repeat(16_384);
  await using audit = await AuditLog.open(path, log);
  audit.write({ ...entry(1), principal: long, maker: long, path: long, sandbox: long, snapshot: long, user_agent: long, remote: long });
  await audit.flush();
  const line = await readFile(path, "utf8");
  assert.ok(line.length < 4096, `${line.length}`);
  assert.equal((JSON.parse(line) as AuditEntry).sandbox, "x".repeat(256));
});
