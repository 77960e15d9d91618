// CORS: requests of pages from other origins.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeManager } from "../helpers/fake-manager.ts";
import { open, serve } from "../helpers/serve.ts";
import type { IncomingHttpHeaders } from "node:http";

const APP = "https://app.example.org";
const PREFLIGHT = { "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type" };

function told(headers: IncomingHttpHeaders): string[] {
  return Object.keys(headers).filter((name) => name.startsWith("access-control-"));
}

test("a page of an allowed origin may read answers and the headers it needs", async (t) => {
  const manager = fakeManager({ sandboxes: { list: () => ({ items: [], nextCursor: "more" }) } });
  const fixture = await serve(t, { manager, settings: { "cors-origins": `http://localhost:3000,${APP}` } });
  const { token } = fixture.services.tokens.create({ name: "page", scope: "read", max_sandboxes: null });
  for (const origin of [APP, "http://localhost:3000"]) {
    const reply = await fixture.ask("/v1/sandboxes", { tcp: true, token, headers: { origin } });
    assert.equal(reply.status, 200);
    assert.equal(reply.headers["access-control-allow-origin"], origin);
    assert.equal(reply.headers.vary, "Origin");
    const exposed = String(reply.headers["access-control-expose-headers"]).split(", ");
    assert.deepEqual(exposed, [
      "X-Request-Id",
      "X-Next-Cursor",
      "X-Next-Token",
      "Retry-After",
      "Idempotent-Replayed",
      "X-Forkd-Error",
      "X-Forkd-Location",
    ]);
    assert.equal(reply.headers["access-control-allow-credentials"], undefined);
  }
});

test("it may also read the reason of a refusal", async (t) => {
  const fixture = await serve(t, { settings: { "cors-origins": APP } });
  for (const [path, status] of [
    ["/version", 401],
    ["/v1/%zz", 400],
  ] as const) {
    const reply = await fixture.ask(path, { tcp: true, headers: { origin: APP } });
    assert.equal(reply.status, status);
    assert.equal(reply.headers["access-control-allow-origin"], APP);
  }
});

test("streams have the headers too", async (t) => {
  const fixture = await serve(t, { settings: { "cors-origins": APP } });
  const { token } = fixture.services.tokens.create({ name: "page", scope: "read", max_sandboxes: null });
  const response = await open({ ...fixture.options({ tcp: true, token, headers: { origin: APP } }), path: "/v1/events" });
  assert.equal(response.headers["access-control-allow-origin"], APP);
  assert.equal(response.headers["content-type"], "text/event-stream");
  response.destroy();
});

test("a preflight request is answered without a token", async (t) => {
  const fixture = await serve(t, { settings: { "cors-origins": APP } });
  const reply = await fixture.ask("/v1/sandboxes", { tcp: true, method: "OPTIONS", headers: { origin: APP, ...PREFLIGHT } });
  assert.equal(reply.status, 204);
  assert.equal(reply.text, "");
  assert.equal(reply.headers["access-control-allow-origin"], APP);
  assert.equal(reply.headers["access-control-allow-methods"], "GET, HEAD, POST, PUT, PATCH, DELETE");
  const allowed = String(reply.headers["access-control-allow-headers"]);
  for (const name of ["Authorization", "Content-Type", "Accept", "Idempotency-Key", "Last-Event-ID", "X-Request-Id"])
    assert.ok(allowed.includes(name), name);
  assert.match(String(reply.headers["access-control-max-age"]), /^[1-9]\d*$/);
  const plain = await fixture.ask("/v1/sandboxes", { tcp: true, method: "OPTIONS", headers: { origin: APP } });
  assert.equal(plain.status, 401, "OPTIONS alone is an ordinary request");
});

test("other origins get no headers", async (t) => {
  const fixture = await serve(t, { settings: { "cors-origins": APP } });
  for (const origin of ["https://evil.example.org", `${APP}.evil.org`, "http://app.example.org", `${APP}:8443`, "null", ""]) {
    const asked = await fixture.ask("/healthz", { tcp: true, headers: { origin } });
    assert.deepEqual([asked.status, told(asked.headers)], [200, []], origin);
    assert.equal(asked.headers.vary, "Origin");
    const preflight = await fixture.ask("/v1/sandboxes", { tcp: true, method: "OPTIONS", headers: { origin, ...PREFLIGHT } });
    assert.deepEqual([preflight.status, told(preflight.headers)], [401, []], origin);
  }
});

test("an asterisk allows every origin", async (t) => {
  const fixture = await serve(t, { settings: { "cors-origins": "*" } });
  const reply = await fixture.ask("/healthz", { tcp: true, headers: { origin: APP } });
  assert.equal(reply.headers["access-control-allow-origin"], APP);
});

test("without the setting, and on the Unix socket, no origin gets headers", async (t) => {
  const without = await serve(t);
  const asked = await without.ask("/healthz", { tcp: true, headers: { origin: APP } });
  assert.deepEqual([told(asked.headers), asked.headers.vary], [[], undefined]);
  const all = await serve(t, { settings: { "cors-origins": "*" } });
  const local = await all.ask("/healthz", { headers: { origin: APP } });
  assert.deepEqual([told(local.headers), local.headers.vary], [[], undefined]);
});
