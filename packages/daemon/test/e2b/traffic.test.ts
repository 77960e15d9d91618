// Servers of a sandbox, for those who have what E2B's API gave them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { openedByTraffic } from "../../src/e2b/traffic.ts";
import { httpServer, serveGuests } from "../http/proxy/guest.ts";

const TRAFFIC = "e2b-traffic-access-token";

test("the traffic token of a sandbox opens its servers, and no other's", async (t) => {
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
  assert.equal((await visit(byHeaders)).status, 401);
});

test("a sandbox is open to all only where it was said to be", () => {
  const sandbox = { id: "sb-a", created_by: "ci", metadata: {} as Record<string, string> };
  const needs = {
    accessTokens: { opens: () => false },
    manager: { ports: { idOf: (id: string) => (id === "sb-a" ? id : undefined) }, sandboxes: { get: () => sandbox } },
  } as unknown as Parameters<typeof openedByTraffic>[2];
  assert.equal(openedByTraffic("sb-a", {}, needs), null);
  assert.equal(openedByTraffic("sb-unknown", {}, needs), null);
  sandbox.metadata["e2b:public"] = "true";
  assert.equal(openedByTraffic("sb-a", {}, needs), "ci");
});
