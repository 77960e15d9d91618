// What is said in E2B's words: ends of processes, users, permissions, measurements, names of templates.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePasswd, pathFor } from "../../src/e2b/envd/accounts.ts";
import { permissionsOf } from "../../src/e2b/envd/entry.ts";
import { endOf, processMessages } from "../../src/e2b/envd/process-events.ts";
import { changesOf } from "../../src/e2b/envd/watch.ts";
import { policyOf } from "../../src/e2b/control/network.ts";
import { parseMetrics } from "../../src/e2b/guest-metrics.ts";
import { tagOf } from "../../src/e2b/templates/templates.ts";
import { EXIT, FakeWatched, output } from "../http/helpers/fake-watched.ts";
import type { FileEvent } from "../../src/api/files.ts";

test("a process starts, prints in pieces, and ends", async () => {
  const process = new FakeWatched();
  process.put(output("a".repeat(40_000), 0), output("err", 0, "stderr"), EXIT);
  const messages = (await Array.fromAsync(processMessages(process))) as { event: Record<string, Record<string, string>> }[];
  const kinds = messages.map(({ event }) => Object.entries(event).map(([kind, value]) => [kind, ...Object.keys(value)].join(" "))[0]);
  assert.deepEqual(kinds, ["start pid", "data stdout", "data stdout", "data stderr", "end exitCode exited status"]);
  const printed = messages.slice(1, 3).map(({ event }) => Buffer.from(event["data"]?.["stdout"] ?? "", "base64").length);
  assert.deepEqual(printed, [32_768, 7232]);
});

test("how a process ended is said as Go says it", () => {
  assert.deepEqual(endOf({ exit_code: 3, signal: null, timed_out: false }), {
    exitCode: 3,
    exited: true,
    status: "exit status 3",
    error: "exit status 3",
  });
  const killed = { exitCode: -1, exited: false, status: "signal: killed", error: "signal: killed" };
  assert.deepEqual(endOf({ exit_code: 137, signal: "SIGKILL", timed_out: false }), killed);
});

test("a process that was ended by its time-out fails its stream", async () => {
  const process = new FakeWatched();
  process.put({ type: "exit", exit: { exit_code: 124, signal: null, timed_out: true } });
  await assert.rejects(Array.fromAsync(processMessages(process)), /longer than its timeout/);
});

test("users are those of the guest, and paths begin at their homes", () => {
  const accounts = parsePasswd("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1001::/home/user:/bin/bash\n\nbroken:x:a:b\n# no\n");
  assert.deepEqual([...accounts.keys()], ["root", "user"]);
  const user = accounts.get("user");
  assert.ok(user);
  assert.deepEqual(user, { name: "user", uid: 1000, gid: 1001, home: "/home/user" });
  const paths = ["", "a/../b", "~", "~/c", "/d//e/", "~x"].map((path) => pathFor(user, path));
  assert.deepEqual(paths, ["/home/user", "/home/user/b", "/home/user", "/home/user/c", "/d/e", "/home/user/~x"]);
  assert.throws(() => pathFor(user, "a\0b"), /zero byte/);
});

test("permissions have Go's letters", () => {
  assert.equal(permissionsOf("file", 0o644), "-rw-r--r--");
  assert.equal(permissionsOf("directory", 0o1777), "dtrwxrwxrwx");
  assert.equal(permissionsOf("file", 0o4755), "urwxr-xr-x");
  assert.equal(permissionsOf("char", 0o600), "Dcrw-------");
});

test("changes have names below the folder, and a move is two of them", async () => {
  const events: FileEvent[] = [
    { type: "ready" },
    { type: "created", path: "/w/a", directory: false },
    { type: "moved", path: "/w/d/b", from: "/w/a", directory: false },
    { type: "overflow" },
    { type: "removed", path: "/w/d/b", directory: false },
  ];
  const told = async function* (): AsyncGenerator<FileEvent> {
    yield* events;
  };
  const changes = (await Array.fromAsync(changesOf(told(), "/w"))).map(({ name, type }) => `${type} ${name}`);
  assert.deepEqual(changes, ["EVENT_TYPE_CREATE a", "EVENT_TYPE_RENAME a", "EVENT_TYPE_CREATE d/b", "EVENT_TYPE_REMOVE d/b"]);
});

test("measurements are read from the guest's own files", () => {
  const text = [
    "cpu  100 0 100 800 0 0 0",
    "cpu  130 0 120 850 0 0 0",
    "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nBuffers: 10 kB\nCached: 200 kB\nSwapCached: 5 kB",
    "Filesystem 1024-blocks Used Available Capacity Mounted on\noverlay 5000 1200 3800 24% /",
  ].join("\n");
  const kib = 1024;
  const memory = { memTotal: 1000 * kib, memUsed: 400 * kib, memCache: 210 * kib };
  assert.deepEqual(parseMetrics(text, 2), { cpuUsedPct: 100, ...memory, diskUsed: 1200 * kib, diskTotal: 5000 * kib });
  assert.equal(parseMetrics("", 1).memTotal, 0);
});

test("the id of a template is the tag of a snapshot", () => {
  assert.deepEqual(["a", "a:default", "team/a:latest", "team/a:v1", "sn-x"].map(tagOf), ["a", "a", "a", "a.v1", "sn-x"]);
  for (const wrong of ["", "a/", "a:.b:c/", "a b"]) assert.throws(() => tagOf(wrong), /not a valid name/);
});

test("networks: open unless closed, rules before denials, and what cannot be kept is refused", () => {
  const all = ["0.0.0.0/0"];
  assert.deepEqual(policyOf({}, undefined), { mode: "open", allow: [] });
  assert.deepEqual(policyOf({}, false), { mode: "none" });
  assert.deepEqual(policyOf({ denyOut: all }, true), { mode: "none" });
  assert.deepEqual(policyOf({ denyOut: all, allowOut: ["a.org"] }, true), { mode: "allow", allow: ["a.org"] });
  assert.deepEqual(policyOf({ denyOut: all, allowOut: all }, true), { mode: "open", allow: [] });
  assert.throws(() => policyOf({ denyOut: ["192.0.2.1"] }, true), /single addresses/);
  assert.throws(() => policyOf({ rules: { "a.org": [] } }, true), /network.rules/);
  assert.throws(() => policyOf({ allowOut: ["a b"] }, true), /allow/);
});
