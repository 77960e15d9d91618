// Bounds on the memory that a guest's user list and folders can use in the daemon.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { Accounts } from "../../src/e2b/envd/accounts.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve } from "../helpers/serve.ts";
import type { FileInfo } from "../../src/api/files.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

const ID = "sb-abcdefgh234567xy";
const HEADERS = { "e2b-sandbox-id": "sbabcdefgh234567xy", "e2b-sandbox-port": "49983" };
const FILE = { kind: "file", size: 3, mode: "644", uid: 0, gid: 0, owner: "root", group: "root", mtime_ms: 0 } as FileInfo;
const CALLER = { principal: "ci", project: "default", maxSandboxes: null, requestId: "r", signal: new AbortController().signal };
const PASSWD = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n";

test("an endless file of users is not read", async () => {
  let sent = 0;
  const endless = async function* (): AsyncGenerator<Buffer> {
    for (; sent < 64 * 1024 * 1024; sent += 65536) yield Buffer.alloc(65536, PASSWD);
  };
  const accounts = new Accounts({ manager: { files: { read: async () => endless() } } });
  await assert.rejects(accounts.find({ id: ID, metadata: {} }, "user", CALLER), {
    code: "FILE_FAILED",
    message: /more than 1048576 bytes/,
  });
  assert.ok(sent <= 2 * 1024 * 1024, `${sent} bytes were read`);
});

test("a found user is cached, a missing one is looked up again", async () => {
  let reads = 0;
  let text = PASSWD;
  const read = async (): Promise<AsyncIterable<Buffer>> => {
    reads++;
    return (async function* () {
      yield Buffer.from(text);
    })();
  };
  const accounts = new Accounts({ manager: { files: { read } } });
  const find = async (name?: string): Promise<string> => (await accounts.find({ id: ID, metadata: {} }, name, CALLER)).home;
  assert.deepEqual([await find("user"), await find(), await find("user"), reads], ["/home/user", "/home/user", "/home/user", 1]);
  await assert.rejects(find("late"), { code: "UNAUTHORIZED" });
  text += "late:x:7:7::/late:\n";
  assert.deepEqual([await find("late"), reads], ["/late", 3]);
});

type Files = Partial<ManagerApi["files"]>;

async function listed(t: TestContext, files: Files): Promise<{ status: number; body: { entries?: object[]; message?: string } }> {
  const sandbox = { ...sandboxInfo(ID), created_by: "ci", metadata: {}, created_at_unix_ms: 1, expires_at_unix: null };
  const manager = fakeManager({
    sandboxes: { get: () => sandbox },
    execution: { exec: async () => ({ exit_code: 1, stdout: "" }) as Awaited<ReturnType<ManagerApi["execution"]["exec"]>> },
    files: {
      read: async () => (async function* () {})(),
      stat: async () => ({ ...FILE, kind: "directory" }),
      attributes: async (_id, { paths }) => paths.map(() => ({})),
      ...files,
    },
  });
  const { ask } = await serve(t, { manager });
  const answer = await ask("/filesystem.Filesystem/ListDir", { method: "POST", headers: HEADERS, body: { path: "/d", depth: 10_000 } });
  return { status: answer.status, body: answer.json() };
}

test("an endless folder is refused", async (t) => {
  let pages = 0;
  const list: Files["list"] = async () => {
    pages++;
    const items = Array.from({ length: 1000 }, (_, at) => ({ ...FILE, path: `/d/${pages}-${at}`, name: "x" }));
    return { items, nextCursor: pages < 1000 ? String(pages) : null };
  };
  const { status, body } = await listed(t, { list });
  assert.notEqual(status, 200);
  assert.match(body.message ?? "", /more than 50000 entries/);
  assert.ok(pages <= 51, `${pages} pages were asked for`);
});

test("links of a folder are followed a few at a time", async (t) => {
  const links = Array.from({ length: 500 }, (_, at) => ({ ...FILE, kind: "symlink" as const, path: `/d/${at}`, name: "x" }));
  let under = 0;
  let most = 0;
  const stat: Files["stat"] = async (_id, { path }) => {
    if (path === "/d") return { ...FILE, kind: "directory" };
    most = Math.max(most, ++under);
    await new Promise(setImmediate);
    under--;
    return FILE;
  };
  const { status, body } = await listed(t, { stat, list: async () => ({ items: links, nextCursor: null }) });
  assert.deepEqual([status, body.entries?.length], [200, 500]);
  assert.ok(most <= 16, `${most} at a time`);
});
