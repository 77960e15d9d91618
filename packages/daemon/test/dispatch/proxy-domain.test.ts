// URLs at which browsers reach servers in guests.

import assert from "node:assert/strict";
import { test } from "node:test";
import { proxyOrigin, serverUrl, splitDomain } from "../../src/dispatch/proxy-domain.ts";

test("the address at which browsers reach servers", () => {
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
