// Which requests are for a server in a guest.

import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, proxyOrigin, routedUrl, serverUrl, splitDomain } from "../../../src/http/proxy/address.ts";
import type { Address, Domain } from "../../../src/http/proxy/address.ts";

const LOCALHOST = splitDomain("localhost");

const at = (url: string, host: string | undefined = "api.example.org", domain: Domain | null = LOCALHOST): Address | null =>
  addressOf({ url, headers: { host } }, domain);

test("by path: everything behind the port is the guest's, byte for byte", () => {
  const prefix = "/v1/sandboxes/sb-1/proxy/8000";
  for (const [rest, path] of [
    ["", "/"],
    ["/", "/"],
    ["?x=1", "/?x=1"],
    ["/a//b/../c%2F%zz?x=%&y#z", "/a//b/../c%2F%zz?x=%&y#z"],
    ["/v1/stop", "/v1/stop"],
  ])
    assert.deepEqual(at(prefix + rest), { by: "path", id: "sb-1", port: "8000", prefix, path });
  assert.equal(at("/v1/sandboxes/a%20b/proxy/x/y")?.id, "a%20b");
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

test("by host: whatever the path is", () => {
  for (const host of [
    "8000-sb-1.localhost",
    "8000-sb-1.localhost:8889",
    "8000-SB-1.LocalHost:1",
    "8000-sb-1.localhost.",
    "8000-sb-1.localhost.:8889",
  ]) {
    for (const url of ["/", "/v1/stop", "/v1/sandboxes/sb-2/proxy/9/x?y", "/healthz"])
      assert.deepEqual(at(url, host), { by: "host", id: "sb-1", port: "8000", prefix: "", path: url }, `${host} ${url}`);
  }
});

test("by host: absolute addresses lose their host, and nothing else gets one", () => {
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

test("a domain of one's own", () => {
  const domain = splitDomain("https://preview.example.org");
  assert.equal(at("/", "80-a.preview.example.org", domain)?.id, "a");
  assert.equal(at("/", "80-a.localhost", domain), null);
  assert.equal(at("/", "80-a.example.org", domain), null);
});

test("the router finds the sandbox and the port, and nothing of the guest", () => {
  assert.equal(routedUrl(at("/v1/sandboxes/a%2Fb/proxy/80/../../x?y") as Address), "/v1/sandboxes/a%2Fb/proxy/80");
  assert.equal(routedUrl(at("/v1/stop", "80-a.localhost") as Address), "/v1/sandboxes/a/proxy/80");
});

test("where browsers find servers", () => {
  const origin = (setting: string | null, bind: string | null, tls = false): string | null =>
    proxyOrigin(setting === null ? null : splitDomain(setting), { bind, tls });
  assert.equal(origin("localhost", "127.0.0.1:8889"), "http://localhost:8889");
  assert.equal(origin("localhost", "[::1]:80"), "http://localhost");
  assert.equal(origin("p.example.org", "0.0.0.0:443", true), "https://p.example.org");
  assert.equal(origin("p.example.org", "0.0.0.0:80", true), "https://p.example.org:80");
  assert.equal(origin("https://p.example.org", "127.0.0.1:8889"), "https://p.example.org");
  assert.equal(origin("https://p.example.org:8443", null), "https://p.example.org:8443");
  assert.equal(origin("p.example.org:80", "127.0.0.1:8889"), "http://p.example.org");
  assert.equal(origin("localhost", null), null);
  assert.equal(origin(null, "127.0.0.1:8889"), null);
  assert.equal(serverUrl("https://p.example.org:8443", "sb-1", 3000), "https://3000-sb-1.p.example.org:8443/");
});
