// Conversions to E2B's formats: process exits, users, permissions, measurements, template names.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePasswd, pathFor } from "../../src/e2b/envd/accounts.ts";
import { permissionsOf } from "../../src/e2b/envd/entry.ts";
import { endOf, processMessages } from "../../src/e2b/envd/process-events.ts";
import { changesOf } from "../../src/e2b/envd/watch.ts";
import { policyOf } from "../../src/e2b/control/network.ts";
import { includes } from "../../src/e2b/control/observe.ts";
import { tagOf } from "../../src/e2b/templates/templates.ts";
import { EXIT, FakeWatched, output } from "../helpers/fake-watched.ts";
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

test("the exit status is worded as in Go", () => {
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

test("users are those of the guest, and paths are relative to their homes", () => {
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

test("changes have names below the folder, and a move is two changes", async () => {
  const events: FileEvent[] = [
    { type: "ready" },
    { type: "created", path: "/w/a", directory: false },
    { type: "moved", path: "/w/d/b", from: "/w/a", directory: false },
    { type: "removed", path: "/w/d/b", directory: false },
  ];
  const told = async function* (): AsyncGenerator<FileEvent> {
    yield* events;
  };
  const changes = (await Array.fromAsync(changesOf(told(), "/w"))).map(({ name, type }) => `${type} ${name}`);
  assert.deepEqual(changes, ["EVENT_TYPE_CREATE a", "EVENT_TYPE_RENAME a", "EVENT_TYPE_CREATE d/b", "EVENT_TYPE_REMOVE d/b"]);
  const overflow = async function* (): AsyncGenerator<FileEvent> {
    yield { type: "overflow" };
  };
  await assert.rejects(Array.fromAsync(changesOf(overflow(), "/w")), { code: "FILE_FAILED" });
});

test("a measurement belongs to an interval that includes the present", () => {
  const has = (query: Record<string, string>): boolean => includes(new URLSearchParams(query), 1000);
  assert.deepEqual([has({}), has({ start: "900" }), has({ end: "1100" }), has({ start: "900", end: "1000" })], [true, true, true, true]);
  assert.deepEqual([has({ end: "900" }), has({ start: "1100" }), has({ start: "1", end: "2" })], [false, false, false]);
  assert.equal(has({ start: "900", end: "998" }), true, "until now, as the client saw it");
  assert.throws(() => has({ start: "2", end: "1" }), /start: must not be after end/);
  assert.throws(() => has({ start: "soon" }), /start: must be a time/);
});

test("the id of a template is the tag of a snapshot", () => {
  assert.deepEqual(["a", "a:default", "team/a:latest", "team/a:v1", "sn-x"].map(tagOf), ["a", "a", "a", "a.v1", "sn-x"]);
  for (const wrong of ["", "a/", "a:.b:c/", "a b", ":x", "a:", "a:b:c", "team/:x", "a::x"])
    assert.throws(() => tagOf(wrong), /not a valid name/);
});

test("networks: open by default, rules before denials, and unsupported rules are refused", () => {
  const all = ["0.0.0.0/0"];
  assert.deepEqual(policyOf({}, undefined), { mode: "open", allow: [], deny: [] });
  assert.deepEqual(policyOf({}, false), { mode: "none" });
  assert.deepEqual(policyOf({ denyOut: all }, true), { mode: "none" });
  assert.deepEqual(policyOf({ denyOut: all, allowOut: ["a.org"] }, true), { mode: "allow", allow: ["a.org"] });
  assert.deepEqual(policyOf({ denyOut: all, allowOut: all }, true), { mode: "open", allow: [] });
  const some = ["192.0.2.1", "198.51.100.0/24"];
  assert.deepEqual(policyOf({ denyOut: some, allowOut: ["192.0.2.1"] }, true), { mode: "open", allow: ["192.0.2.1"], deny: some });
  assert.deepEqual(policyOf({ denyOut: [...some, ...all], allowOut: ["a.org"] }, true), { mode: "allow", allow: ["a.org"] });
  assert.throws(() => policyOf({ denyOut: ["example.org"] }, true), /only addresses can be denied/);
  assert.throws(() => policyOf({ rules: { "a.org": [] } }, true), /network.rules/);
  assert.throws(() => policyOf({ allowOut: ["a b"] }, true), /allow/);
});
