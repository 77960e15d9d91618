// Dispatch of a request to a front end.

import assert from "node:assert/strict";
import { test } from "node:test";
import { e2bId, forkdId } from "../../src/dispatch/e2b-id.ts";
import { splitDomain, type Domain } from "../../src/dispatch/proxy-domain.ts";
import { pathTo, targetOf, type Address, type Call } from "../../src/dispatch/target.ts";

const ID = "sb-abcdefgh234567xy";
const THEIRS = "sbabcdefgh234567xy";

const LOCALHOST = splitDomain("localhost");

/** null: REST */
function place(url: string, headers: Record<string, string> = {}): Call | Address | null {
  const target = targetOf({ url, headers: { host: "127.0.0.1:8889", ...headers } }, LOCALHOST);
  return target.to === "e2b" ? target.call : target.to === "port" ? target.address : null;
}

/** null: not a server in a guest */
function at(url: string, host: string | undefined = "api.example.org", domain: Domain | null = LOCALHOST): Address | null {
  const target = targetOf({ url, headers: { host } }, domain);
  return target.to === "port" ? target.address : null;
}

test("an id has one form on each side, and the conversion is reversible", () => {
  assert.equal(e2bId(ID), THEIRS);
  assert.equal(forkdId(THEIRS), ID);
  assert.match(THEIRS, /^[a-z0-9]+$/);
  for (const other of ["sb-short", "i0123456789", "sbABCDEFGH234567XY", ID]) assert.equal(forkdId(other), other);
});

test("paths of the API stay the API's", () => {
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

test("the API is recognised by its paths", () => {
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

test("headers can name a sandbox, for any path", () => {
  for (const path of ["/health", "/metrics", "/v1/status", "/sandboxes"]) {
    const call = place(path, { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49983" });
    assert.ok(call && "plane" in call && call.plane === "sandbox", path);
    assert.deepEqual([call.id, call.port, call.path], [ID, 49_983, path]);
  }
  const interpreter = place("/execute", { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49999" });
  assert.ok(interpreter && "plane" in interpreter && interpreter.plane === "sandbox");
  assert.equal(interpreter.port, 49_999);
});

test("other ports belong to the guest's own servers", () => {
  const expected = { by: "host", id: ID, port: "3000", prefix: "", path: "/sandboxes?x=1", isE2b: true };
  const byHeaders = place("/sandboxes?x=1", { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "3000" });
  assert.deepEqual(byHeaders, { ...expected, by: "path" }, "under the API's own origin");
  assert.deepEqual(place("/sandboxes?x=1", { host: `3000-${THEIRS}.localhost:8889` }), expected);
  assert.deepEqual(place("/sandboxes?x=1", { host: `3000-${ID}.localhost` }), { ...expected, isE2b: false });
});

test("a host name means E2B's protocol only in E2B's form", () => {
  const call = place("/files?path=a", { host: `49983-${THEIRS}.localhost:8889` });
  assert.ok(call && "plane" in call && call.plane === "sandbox");
  assert.deepEqual([call.id, call.query.get("path")], [ID, "a"]);
  const address = place("/files", { host: `49983-${ID}.localhost` });
  assert.ok(address && "by" in address);
});

test("without a name the token or the signature identifies the sandbox", () => {
  for (const path of ["/files?signature=v1_x", "/health", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/contexts/1/restart"]) {
    const call = place(path);
    assert.ok(call && "plane" in call && call.plane === "sandbox" && call.id === null, path);
  }
  const call = place("/metrics", { "x-access-token": "t" });
  assert.ok(call && "plane" in call && call.plane === "sandbox");
});

test("an id in a header is one segment of the path in the audit log, with any content", () => {
  for (const id of ["sb-other?x=", "sb-other#", "../../stop", "a/b", "sb-1/exec?", "%2e%2e", "ä"]) {
    const address = place("/", { "e2b-sandbox-id": id, "e2b-sandbox-port": "80" }) as Address;
    const routed = pathTo(address);
    assert.match(routed, /^\/v1\/sandboxes\/[^/?#]+\/proxy\/80$/, id);
    assert.equal(decodeURIComponent(routed.split("/")[3] ?? ""), id);
  }
});

test("by path: everything after the port is the guest's, byte for byte", () => {
  const prefix = "/v1/sandboxes/sb-1/proxy/8000";
  for (const [rest, path] of [
    ["", "/"],
    ["/", "/"],
    ["?x=1", "/?x=1"],
    ["/a//b/../c%2F%zz?x=%&y#z", "/a//b/../c%2F%zz?x=%&y#z"],
    ["/v1/stop", "/v1/stop"],
  ])
    assert.deepEqual(at(prefix + rest), { by: "path", id: "sb-1", port: "8000", prefix, path });
  assert.equal(at("/v1/sandboxes/a%20b/proxy/x/y")?.id, "a b");
  assert.equal(at("/v1/sandboxes/a%zz/proxy/80/")?.id, "a%zz");
});

test("other paths are the API's", () => {
  for (const url of [
    "/",
    "/v1/sandboxes",
    "/v1/sandboxes/sb-1/proxy",
    "/v1/sandboxes/sb-1/proxy/",
    "/v1/sandboxes//proxy/80/",
    "/x/v1/sandboxes/a/proxy/1/",
  ])
    assert.equal(at(url), null, url);
});

test("by host: for any path", () => {
  for (const host of [
    "8000-sb-1.localhost",
    "8000-sb-1.localhost:8889",
    "8000-SB-1.LocalHost:1",
    "8000-sb-1.localhost.",
    "8000-sb-1.localhost.:8889",
  ]) {
    for (const url of ["/", "/v1/stop", "/v1/sandboxes/sb-2/proxy/9/x?y", "/healthz"])
      assert.deepEqual(at(url, host), { by: "host", id: "sb-1", port: "8000", prefix: "", path: url, isE2b: false }, `${host} ${url}`);
  }
});

test("by host: absolute addresses lose their host, and relative ones get none", () => {
  assert.equal(at("http://evil.example/v1/stop?x", "80-a.localhost")?.path, "/v1/stop?x");
  assert.equal(at("http://evil.example", "80-a.localhost")?.path, "/");
  assert.equal(at("*", "80-a.localhost")?.path, "*");
  assert.equal(at("evil", "80-a.localhost")?.path, "/evil");
});

test("other hosts are the API's", () => {
  for (const host of [
    undefined,
    "",
    "localhost",
    "localhost:8889",
    "127.0.0.1:8889",
    "sb-1.localhost",
    "8000.localhost",
    "8000-.localhost",
    "8000-sb_1.localhost",
    "8000-a.b.localhost",
    "8000-a.localhost.evil.org",
    "8000-a.notlocalhost",
    "x8000-a.localhost",
    "8000-a.localhost:x",
    "8000-a.localhost/x",
  ])
    assert.equal(at("/", host), null, host);
  assert.equal(at("/", "8000-a.localhost", null), null);
});

test("a custom domain", () => {
  const domain = splitDomain("https://preview.example.org");
  assert.equal(at("/", "80-a.preview.example.org", domain)?.id, "a");
  assert.equal(at("/", "80-a.localhost", domain), null);
  assert.equal(at("/", "80-a.example.org", domain), null);
});

test("the audit log has the sandbox and the port, and not the guest's path", () => {
  assert.equal(pathTo(at("/v1/sandboxes/a%2Fb/proxy/80/../../x?y") as Address), "/v1/sandboxes/a%2Fb/proxy/80");
  assert.equal(pathTo(at("/v1/stop", "80-a.localhost") as Address), "/v1/sandboxes/a/proxy/80");
});
