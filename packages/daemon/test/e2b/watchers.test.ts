// Polled watches: CreateWatcher and GetWatcherEvents.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { test, type TestContext } from "node:test";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve } from "../helpers/serve.ts";
import type { FileEvent, FileInfo } from "../../src/api/files.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

const ID = "sb-abcdefgh234567xy";
const HEADERS = { "e2b-sandbox-id": "sbabcdefgh234567xy", "e2b-sandbox-port": "49983" };
const FILE = { kind: "file", size: 3, mode: "644", uid: 0, gid: 0, owner: "root", group: "root", mtime_ms: 0 } as FileInfo;

type Call = (method: string, body: object) => Promise<Record<string, unknown>>;

/** @param changed when the changes occur, which is after the CreateWatcher request has ended */
async function watched(t: TestContext, changed: Promise<void>): Promise<Call> {
  const events = async function* (): AsyncGenerator<FileEvent> {
    yield { type: "ready" };
    await changed;
    yield { type: "created", path: "/root/d/new", directory: false };
    yield { type: "removed", path: "/root/d/new", directory: false };
  };
  const files: Partial<ManagerApi["files"]> = {
    read: async () => (async function* () {})(),
    stat: async (_id, { path }, { signal }) => {
      signal.throwIfAborted();
      return path === "/root/d" ? { ...FILE, kind: "directory" } : FILE;
    },
    attributes: async (_id, { paths }, { signal }) => {
      signal.throwIfAborted();
      return paths.map(() => ({}));
    },
    watch: async () => events(),
  };
  const sandbox = { ...sandboxInfo(ID), created_by: "ci", metadata: {}, created_at_unix_ms: 1, expires_at_unix: null };
  const manager = fakeManager({
    sandboxes: { get: () => sandbox },
    files,
  });
  const { ask } = await serve(t, { manager });
  return async (method, body) => (await ask(`/filesystem.Filesystem/${method}`, { method: "POST", headers: HEADERS, body })).json();
}

async function changesOf(call: Call, watcherId: unknown): Promise<Record<string, unknown>[]> {
  const seen: Record<string, unknown>[] = [];
  while (seen.length < 2) {
    seen.push(...((await call("GetWatcherEvents", { watcherId }))["events"] as Record<string, unknown>[]));
    await sleep(5);
  }
  return seen;
}

test("a watcher that includes entries describes each existing file", async (t) => {
  const { promise: changed, resolve: change } = Promise.withResolvers<void>();
  const call = await watched(t, changed);
  const { watcherId } = await call("CreateWatcher", { path: "d", includeEntry: true });
  const plain = await call("CreateWatcher", { path: "d" });
  change();
  const [created, removed] = await changesOf(call, watcherId);
  assert.deepEqual([created?.["type"], created?.["name"]], ["EVENT_TYPE_CREATE", "new"]);
  const { name, path, size, permissions } = (created?.["entry"] ?? {}) as Record<string, unknown>;
  assert.deepEqual({ name, path, size, permissions }, { name: "new", path: "/root/d/new", size: "3", permissions: "-rw-r--r--" });
  assert.deepEqual(removed, { name: "new", type: "EVENT_TYPE_REMOVE" }, "there is nothing left to describe");
  const without = await changesOf(call, plain["watcherId"]);
  assert.ok(without.every((change) => !("entry" in change)));
});
