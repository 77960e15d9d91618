// Authentication: transports, tokens, scopes, and the limit on guesses.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { AuthFailures } from "../../src/dispatch/auth-failures.ts";
import { FakeEvents, fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { open, readAll, serve, STORE_ID, tempDir } from "../helpers/serve.ts";
import type { IncomingMessage } from "node:http";
import type { Scope } from "../../src/api/common.ts";
import type { Ask } from "../helpers/serve.ts";

function token(fixture: Awaited<ReturnType<typeof serve>>, scope: Scope): string {
  return fixture.services.tokens.create({ name: `the-${scope}`, scope, max_sandboxes: 7 }).token;
}

test("the Unix socket needs no token and has scope admin", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/v1/tokens");
  assert.equal(reply.status, 200);
});

test("TCP without a token is refused, also when no token exists", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/version", { tcp: true });
  assert.equal(reply.status, 401);
  assert.equal(reply.json()["code"], "UNAUTHORIZED");
  assert.match(String(reply.headers["www-authenticate"]), /^Bearer/);
});

test("health and readiness need no token, with and without a trailing slash", async (t) => {
  const fixture = await serve(t);
  for (const path of ["/healthz", "/healthz/", "/readyz"]) assert.equal((await fixture.ask(path, { tcp: true })).status, 200, path);
});

test("a client that expects another store is refused, for any request", async (t) => {
  const fixture = await serve(t);
  for (const path of ["/healthz", "/v1/sandboxes", "/v1/nothing"]) {
    const reply = await fixture.ask(path, { headers: { "x-forkd-store": "fedcba9876543210" } });
    assert.deepEqual([reply.status, reply.json()["code"]], [421, "WRONG_STORE"], path);
    assert.match(String(reply.json()["error"]), /serves another store: \/store/);
  }
  assert.equal((await fixture.ask("/v1/tokens", { headers: { "x-forkd-store": STORE_ID } })).status, 200);
});

test("the scheme is case-insensitive", async (t) => {
  const fixture = await serve(t);
  const secret = token(fixture, "read");
  for (const scheme of ["Bearer", "bearer", "BEARER"]) {
    const reply = await fixture.ask("/version", { tcp: true, headers: { authorization: `${scheme} ${secret}` } });
    assert.equal(reply.status, 200, scheme);
  }
  for (const header of [`Basic ${secret}`, secret, "Bearer", "Bearer ", `Bearer ${secret} ${secret}`]) {
    const reply = await fixture.ask("/version", { tcp: true, headers: { authorization: header } });
    assert.equal(reply.status, 401, header);
  }
});

test("scopes grow from read over exec and admin to operator", async (t) => {
  const fixture = await serve(t, { manager: fakeManager({ sandboxes: { list: () => ({ items: [], nextCursor: null }) } }) });
  const secrets = {
    read: token(fixture, "read"),
    exec: token(fixture, "exec"),
    admin: token(fixture, "admin"),
    operator: token(fixture, "operator"),
  };
  const asked = {
    read: () => ({ path: "/v1/sandboxes", method: "GET" }),
    exec: () => ({ path: "/v1/sandboxes/x/ping", method: "POST" }),
    admin: () => ({ path: "/v1/tokens", method: "GET" }),
    operator: () => ({ path: "/v1/projects", method: "GET" }),
  };
  const order: Scope[] = ["read", "exec", "admin", "operator"];
  for (const has of order) {
    for (const needs of order) {
      const { path, method } = asked[needs]();
      const reply = await fixture.ask(path, { tcp: true, token: secrets[has], method });
      const allowed = order.indexOf(has) >= order.indexOf(needs);
      assert.equal(reply.status === 403, !allowed, `${has} asks for ${needs}`);
      if (!allowed) assert.equal(reply.json()["code"], "FORBIDDEN");
    }
  }
});

test("the caller carries the token's name and limit", async (t) => {
  const seen: unknown[] = [];
  const manager = fakeManager({
    sandboxes: {
      pause: async (id, { principal, maxSandboxes }) => {
        seen.push([principal, maxSandboxes]);
        return sandboxInfo(id);
      },
    },
  });
  const fixture = await serve(t, { manager });
  await fixture.ask("/v1/sandboxes/a/pause", { method: "POST", tcp: true, token: token(fixture, "exec") });
  await fixture.ask("/v1/sandboxes/a/pause", { method: "POST" });
  assert.deepEqual(seen, [
    ["the-exec", 7],
    ["local", null],
  ]);
});

test("a revoked token and the old value of a rotated one are refused", async (t) => {
  const fixture = await serve(t);
  const secret = token(fixture, "read");
  const created = await fixture.ask("/v1/tokens/the-read/rotate", { method: "POST" });
  assert.equal(created.status, 200);
  const fresh = String(created.json()["token"]);
  assert.equal((await fixture.ask("/version", { tcp: true, token: secret })).status, 401);
  assert.equal((await fixture.ask("/version", { tcp: true, token: fresh })).status, 200);
  assert.equal((await fixture.ask("/v1/tokens/the-read", { method: "DELETE" })).status, 204);
  assert.equal((await fixture.ask("/version", { tcp: true, token: fresh })).status, 401);
});

test("an admin makes, rotates and revokes no token of an operator", async (t) => {
  const fixture = await serve(t);
  const admin = { tcp: true, token: token(fixture, "admin") };
  const made = await fixture.ask("/v1/tokens", { method: "POST", body: { name: "root", scope: "operator" } });
  assert.equal(made.status, 201);
  const attempts = [
    fixture.ask("/v1/tokens", { ...admin, method: "POST", body: { name: "more", scope: "operator" } }),
    fixture.ask("/v1/tokens/root/rotate", { ...admin, method: "POST" }),
    fixture.ask("/v1/tokens/root", { ...admin, method: "DELETE" }),
  ];
  for (const { status, json } of await Promise.all(attempts)) assert.deepEqual([status, json()["code"]], [403, "FORBIDDEN"]);
  const secret = String(made.json()["token"]);
  assert.equal((await fixture.ask("/version", { tcp: true, token: secret })).status, 200);
});

test("revoking a token ends its running requests, streams included, and no others", async (t) => {
  const events = new FakeEvents();
  const begun = Promise.withResolvers<void>();
  const manager = fakeManager({
    events,
    sandboxes: { get: sandboxInfo },
    execution: {
      async *logs(_id, _query, { signal }) {
        yield "line\n";
        await once(signal, "abort");
      },
      exec: async (_id, _request, { signal }) => {
        begun.resolve();
        await once(signal, "abort");
        throw new ForkdError("CANCELLED", "Cannot wait: it was cancelled.");
      },
    },
  });
  for (const end of ["rotate", "revoke"]) {
    const fixture = await serve(t, { manager });
    const secret = token(fixture, "exec");
    const watch = (path: string, ask: Ask): Promise<IncomingMessage> => open({ ...fixture.options(ask), path });
    const theirs = [
      await watch("/v1/events", { tcp: true, token: secret }),
      await watch("/v1/sandboxes/a/logs?follow", { tcp: true, token: secret }),
    ];
    const other = await watch("/v1/events", { tcp: true, token: token(fixture, "read") });
    const local = await watch("/v1/events", {});
    const running = fixture.ask("/v1/sandboxes/a/exec", { tcp: true, token: secret, body: { args: ["x"] } });
    await begun.promise;
    const reply = await fixture.ask(end === "rotate" ? "/v1/tokens/the-exec/rotate" : "/v1/tokens/the-exec", {
      method: end === "rotate" ? "POST" : "DELETE",
    });
    assert.ok(reply.status < 300);
    for (const stream of theirs) await readAll(stream);
    const ended = await running;
    assert.deepEqual([ended.status, ended.json()["code"]], [401, "UNAUTHORIZED"], end);
    assert.equal(events.listeners, 2, "the others still watch");
    for (const stream of [other, local]) stream.destroy();
    while (events.listeners > 0) await new Promise((resolve) => setImmediate(resolve));
  }
});

test("a request that rotates its own token gets its answer", async (t) => {
  const fixture = await serve(t);
  const rotated = await fixture.ask("/v1/tokens/the-admin/rotate", { tcp: true, token: token(fixture, "admin"), method: "POST" });
  assert.equal(rotated.status, 200);
  const fresh = String(rotated.json()["token"]);
  assert.equal((await fixture.ask("/v1/tokens/the-admin", { tcp: true, token: fresh, method: "DELETE" })).status, 204);
});

test("a request whose token is revoked while its body arrives is not executed", async (t) => {
  let isDone = false;
  const fixture = await serve(t, { manager: fakeManager({ sandboxes: { update: async () => ((isDone = true), sandboxInfo("a")) } }) });
  const asked = request({
    ...fixture.options({ tcp: true, token: token(fixture, "exec"), method: "PATCH", body: {} }),
    path: "/v1/sandboxes/a",
  });
  const answered = once(asked, "response") as Promise<[IncomingMessage]>;
  asked.write("{");
  await until(() => fixture.services.inFlight.count > 0);
  await fixture.ask("/v1/tokens/the-exec", { method: "DELETE" });
  asked.end("}");
  const [response] = await answered;
  assert.equal(response.statusCode, 401);
  response.resume();
  assert.equal(isDone, false);
});

test("after ten wrong tokens even the right one is refused until the window has passed", async (t) => {
  let now = 1000;
  const failures = new AuthFailures({ nowMs: () => now });
  const fixture = await serve(t, { failures });
  const secret = token(fixture, "read");
  for (let i = 0; i < 10; i++) assert.equal((await fixture.ask("/version", { tcp: true, token: `wrong-${i}` })).status, 401);
  const refused = await fixture.ask("/version", { tcp: true, token: secret });
  assert.equal(refused.status, 429);
  assert.equal(refused.json()["code"], "RATE_LIMITED");
  assert.ok(Number(refused.headers["retry-after"]) > 0);
  assert.equal((await fixture.ask("/version")).status, 200, "the Unix socket is not concerned");
  assert.equal((await fixture.ask("/healthz", { tcp: true })).status, 200);
  now += 60_001;
  assert.equal((await fixture.ask("/version", { tcp: true, token: secret })).status, 200);
});

test("requests without a token do not count as guesses", async (t) => {
  const fixture = await serve(t);
  for (let i = 0; i < 15; i++) assert.equal((await fixture.ask("/version", { tcp: true })).status, 401);
});

test("failures are counted per address, and per network for IPv6", () => {
  const failures = new AuthFailures({ nowMs: () => 0 });
  for (let i = 0; i < 10; i++) failures.add(`2001:db8::${i}`);
  assert.ok(failures.blockedMs("2001:db8::ffff") > 0);
  assert.equal(failures.blockedMs("2001:db8:0:1::1"), 0);
  assert.equal(failures.blockedMs("10.0.0.1"), 0);
});

test("the map of addresses is bounded", () => {
  const failures = new AuthFailures({ nowMs: () => 0 });
  for (let i = 0; i < 10; i++) failures.add("192.0.2.1");
  for (let i = 0; i < 20_000; i++) failures.add(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
  assert.equal(failures.blockedMs("192.0.2.1"), 0, "the oldest made room");
});

test("authentication precedes reading the body", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/v1/sandboxes", { tcp: true, method: "POST", body: "{ this is not JSON" });
  assert.equal(reply.status, 401);
});

test("TLS serves the same API", async (t) => {
  const dir = await tempDir(t);
  try {
    const files = ["-keyout", join(dir, "key.pem"), "-out", join(dir, "cert.pem")];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", ...files], {
      stdio: "ignore",
    });
  } catch (error) {
    t.skip(`no certificate could be made: ${String(error)}`);
    return;
  }
  const tls = { cert: await readFile(join(dir, "cert.pem")), key: await readFile(join(dir, "key.pem")) };
  const fixture = await serve(t, { tls });
  assert.equal((await fixture.ask("/version", { tcp: true })).status, 401);
  assert.equal((await fixture.ask("/version", { tcp: true, token: token(fixture, "read") })).status, 200);
});
