// Which requests are E2B's, and for which plane.

import assert from "node:assert/strict";
import { test } from "node:test";
import { callOf, type Call } from "../../src/e2b/call.ts";
import { e2bId, forkdId } from "../../src/e2b/ids.ts";
import { addressOf, splitDomain } from "../../src/http/proxy/address.ts";
import type { Address } from "../../src/http/proxy/address.ts";

const ID = "sb-abcdefgh234567xy";
const THEIRS = "sbabcdefgh234567xy";

function place(url: string, headers: Record<string, string> = {}): Call | Address | null {
  const asked = { url, headers: { host: "127.0.0.1:8889", ...headers } };
  return callOf(asked, addressOf(asked, splitDomain("localhost")));
}

test("an id has one form on each side, and comes back as it was", () => {
  assert.equal(e2bId(ID), THEIRS);
  assert.equal(forkdId(THEIRS), ID);
  assert.match(THEIRS, /^[a-z0-9]+$/);
  for (const other of ["sb-short", "i0123456789", "sbABCDEFGH234567XY", ID]) assert.equal(forkdId(other), other);
});

test("paths of ours stay ours", () => {
  for (const path of [
    "/v1/sandboxes",
    "/v1/snapshots",
    "/healthz",
    "/readyz",
    "/version",
    "/metrics",
    "/metrics?x=/files",
    "/e2b",
    "/filesystem",
  ])
    assert.equal(place(path), null, path);
});

test("the API is known by its paths", () => {
  for (const path of [
    "/sandboxes",
    "/v2/sandboxes?limit=1",
    "/sandboxes/x/timeout",
    "/v3/templates",
    "/templates/aliases/a",
    "/snapshots",
    "/volumes",
  ]) {
    const call = place(path);
    assert.ok(call && "plane" in call && call.plane === "control", path);
    assert.equal(call.path, path.split("?")[0]);
  }
  assert.equal(place("/sandboxesx"), null);
});

test("a sandbox is named by headers, whatever the path is", () => {
  for (const path of ["/health", "/metrics", "/v1/status", "/sandboxes"]) {
    const call = place(path, { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49983" });
    assert.ok(call && "plane" in call && call.plane === "sandbox", path);
    assert.deepEqual([call.id, call.port, call.path], [ID, 49_983, path]);
  }
  const interpreter = place("/execute", { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49999" });
  assert.ok(interpreter && "plane" in interpreter && interpreter.plane === "sandbox");
  assert.equal(interpreter.port, 49_999);
});

test("other ports lead to the guest's own servers", () => {
  const expected = { by: "host", id: ID, port: "3000", prefix: "", path: "/sandboxes?x=1" };
  const byHeaders = place("/sandboxes?x=1", { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "3000" });
  assert.deepEqual(byHeaders, { ...expected, by: "path" }, "under the API's own origin");
  assert.deepEqual(place("/sandboxes?x=1", { host: `3000-${THEIRS}.localhost:8889` }), expected);
  assert.deepEqual(place("/sandboxes?x=1", { host: `3000-${ID}.localhost` }), expected);
});

test("a host name means E2B's protocol only in E2B's form", () => {
  const call = place("/files?path=a", { host: `49983-${THEIRS}.localhost:8889` });
  assert.ok(call && "plane" in call && call.plane === "sandbox");
  assert.deepEqual([call.id, call.query.get("path")], [ID, "a"]);
  const address = place("/files", { host: `49983-${ID}.localhost` });
  assert.ok(address && "by" in address);
});

test("without a name the token or the signature has to tell", () => {
  for (const path of ["/files?signature=v1_x", "/health", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/contexts/1/restart"]) {
    const call = place(path);
    assert.ok(call && "plane" in call && call.plane === "sandbox" && call.id === null, path);
  }
  const call = place("/metrics", { "x-access-token": "t" });
  assert.ok(call && "plane" in call && call.plane === "sandbox");
});
