// Access to a sandbox's servers with E2B's traffic tokens.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isHostMask } from "../../src/dispatch/port-metadata.ts";
import { openedByTraffic } from "../../src/proxy/traffic.ts";
import { httpServer, serveGuests } from "./guest.ts";
import type { Reply } from "../helpers/serve.ts";

const TRAFFIC = "e2b-traffic-access-token";

test("the traffic token of a sandbox opens only its own servers", async (t) => {
  const { services, ask } = await serveGuests(t, { settings: { "proxy-domain": "localhost" } });
  const port = await httpServer(t, (request, response) => void response.end(JSON.stringify(request.headers)));
  const token = services.accessTokens.of({ id: "sb-a", created_by: "local" }, "traffic");
  const visit = async (headers: Record<string, string>): Promise<{ status: number; text: string }> => ask("/", { tcp: true, headers });
  const host = `${port}-sb-a.localhost`;
  const reply = await visit({ host, [TRAFFIC]: token });
  assert.equal(reply.status, 200);
  assert.doesNotMatch(reply.text, /e2b-/, "the guest does not get it");
  const other = services.accessTokens.of({ id: "sb-b", created_by: "local" }, "traffic");
  const envd = services.accessTokens.of({ id: "sb-a", created_by: "local" }, "envd");
  for (const wrong of [other, envd, "", `${token}0`]) assert.equal((await visit({ host, [TRAFFIC]: wrong })).status, 401);
  const byHeaders = { "e2b-sandbox-id": "sb-a", "e2b-sandbox-port": String(port) };
  assert.equal((await visit({ ...byHeaders, [TRAFFIC]: token })).status, 200);
  assert.equal((await visit(byHeaders)).status, 403);
});

test("errors have the form of E2B's proxy for clients that use its headers", async (t) => {
  const { ask, services } = await serveGuests(t, { settings: { "proxy-domain": "localhost" } });
  const token = services.accessTokens.of({ id: "sb-a", created_by: "local" }, "traffic");
  const closed = await httpServer(t, () => undefined);
  const visit = async (id: string, headers: Record<string, string>, port = closed): Promise<Reply> =>
    ask("/", { tcp: true, headers: { "e2b-sandbox-id": id, "e2b-sandbox-port": String(port), ...headers } });
  const killed = await visit("sb-gone", {});
  assert.deepEqual([killed.status, killed.json()], [502, { sandboxId: "sb-gone", message: "The sandbox was not found", code: 502 }]);
  const secured = "Sandbox is secured with traffic access token.";
  const missing = await visit("sb-a", {});
  const without = `${secured} Token header '${TRAFFIC}' is missing`;
  assert.deepEqual([missing.status, missing.json()], [403, { sandboxId: "sb-a", message: without, code: 403 }]);
  const wrong = await visit("sb-a", { [TRAFFIC]: "no" });
  assert.deepEqual([wrong.status, wrong.json()["message"]], [403, `${secured} Provided token in header '${TRAFFIC}' is invalid`]);
  const port = 1;
  const nobody = await visit("sb-a", { [TRAFFIC]: token }, port);
  const message = "The sandbox is running but port is not open";
  assert.deepEqual([nobody.status, nobody.json()], [502, { sandboxId: "sb-a", message, port, code: 502 }]);
  const page = await visit("sb-a", { [TRAFFIC]: token, "user-agent": "Mozilla/5.0" }, port);
  assert.deepEqual([page.status, page.headers["content-type"]], [502, "text/html; charset=utf-8"]);
  assert.match(page.text, /<title>Closed Port Error<\/title>/);
});

test("servers get the host name given at the creation of the sandbox", async (t) => {
  const { services, ask, guests } = await serveGuests(t, { settings: { "proxy-domain": "localhost" } });
  const port = await httpServer(t, ({ headers }, response) => void response.end(`${headers.host} ${String(headers["x-forwarded-host"])}`));
  const token = services.accessTokens.of({ id: "sb-a", created_by: "local" }, "traffic");
  const host = `${port}-sb-a.localhost`;
  const visit = async (): Promise<string> => (await ask("/", { tcp: true, headers: { host, [TRAFFIC]: token } })).text;
  assert.equal(await visit(), `${host} ${host}`);
  guests.metadata["e2b:host"] = "custom-host.example.com:${PORT}";
  assert.equal(await visit(), `custom-host.example.com:${port} ${host}`);
  for (const wrong of ["a\r\nX-Other: 1", "-https://abcd", "a b", ""]) {
    guests.metadata["e2b:host"] = wrong;
    assert.equal(await visit(), `${host} ${host}`);
  }
});

test("valid host names for servers", () => {
  for (const right of ["localhost", "localhost:${PORT}", "${PORT}-a.example.org", "127.0.0.1:80", "[::1]:${PORT}"])
    assert.ok(isHostMask(right), right);
  for (const wrong of ["", "-https://abcd", "a/b", "a b", "user@a", "a:port", "a:123456", "a\n", "[x]"])
    assert.ok(!isHostMask(wrong), wrong);
});

test("a sandbox is public only if it was created so", () => {
  const sandbox = { id: "sb-a", project: "default", created_by: "ci", metadata: {} as Record<string, string> };
  const needs = {
    accessTokens: { opens: () => false },
    manager: { ports: { find: (id: string) => (id === "sb-a" ? sandbox : undefined) } },
  } as unknown as Parameters<typeof openedByTraffic>[2];
  assert.equal(openedByTraffic("sb-a", {}, needs), null);
  assert.equal(openedByTraffic("sb-unknown", {}, needs), null);
  sandbox.metadata["e2b:public"] = "true";
  assert.deepEqual(openedByTraffic("sb-a", {}, needs), { name: "ci", project: "default", opens: "sb-a", via: "public" });
});
