// E2B's protocol over HTTP: who gets in, and in which shape errors come.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { fakeManager, sandboxInfo } from "../http/helpers/fake-manager.ts";
import { serve, type Fixture } from "../http/helpers/serve.ts";
import { signatureOf } from "../../src/e2b/signature.ts";
import type { TestContext } from "node:test";
import type { SnapshotInfo } from "../../src/api/snapshot.ts";
import type { ManagerApi } from "../../src/http/services.ts";

const ID = "sb-abcdefgh234567xy";
const THEIRS = "sbabcdefgh234567xy";
const SANDBOX = {
  ...sandboxInfo(ID),
  created_by: "ci",
  metadata: {},
  created_at_unix: 1,
  expires_at_unix: null,
  network: { mode: "none" as const, allow: [], egress_limit_bytes: null },
};
const HEADERS = { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49983" };

function manager(parts: Partial<ManagerApi["sandboxes"]> = {}): ManagerApi {
  const get = (id: string): typeof SANDBOX => {
    if (id === ID) return SANDBOX;
    throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}.`);
  };
  const open = async (id: string): Promise<{ id: string; close(): void }> => ({ id: get(id).id, close: () => undefined });
  return fakeManager({
    sandboxes: { get, list: () => ({ items: [SANDBOX], nextCursor: null }), ...parts },
    snapshots: { get: async () => ({ metadata: {}, status: "ready" }) as SnapshotInfo },
    ports: { open: open as unknown as ManagerApi["ports"]["open"] },
  });
}

async function fixture(t: TestContext, parts?: Partial<ManagerApi["sandboxes"]>): Promise<Fixture & { key: string; token: string }> {
  const served = await serve(t, { manager: manager(parts) });
  const { token: key } = served.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  return { ...served, key, token: served.services.accessTokens.of(SANDBOX, "envd") };
}

test("a token of ours is an API key, also in E2B's form, and its scope counts", async (t) => {
  const { ask, key, services } = await fixture(t);
  for (const given of [key, key.replace("fkd_", "e2b_")]) {
    const { status, json } = await ask(`/sandboxes/${THEIRS}`, { tcp: true, headers: { "x-api-key": given } });
    assert.equal(status, 200);
    assert.equal(json()["sandboxID"], THEIRS);
  }
  const refused = await ask("/v2/sandboxes", { tcp: true, headers: { "x-api-key": "e2b_00" } });
  assert.deepEqual([refused.status, refused.json()["code"]], [401, 401]);
  const { token: reader } = services.tokens.create({ name: "reader", scope: "read", max_sandboxes: null });
  const forbidden = await ask(`/sandboxes/${THEIRS}`, { tcp: true, method: "DELETE", headers: { "x-api-key": reader } });
  assert.deepEqual([forbidden.status, forbidden.json()["code"]], [403, 403]);
});

test("a sandbox that is not there: 404 with a number in the API, 502 inside", async (t) => {
  const { ask } = await fixture(t);
  const outside = await ask("/sandboxes/sbabcdefgh234567zz");
  assert.deepEqual([outside.status, outside.json()["code"]], [404, 404]);
  const inside = await ask("/health", { tcp: true, headers: { ...HEADERS, "e2b-sandbox-id": "sbabcdefgh234567zz" } });
  assert.equal(inside.status, 502);
  assert.deepEqual(inside.json(), { sandboxId: "sbabcdefgh234567zz", message: "The sandbox was not found", code: 502 });
});

test("health needs no token, everything else the sandbox's own", async (t) => {
  const { ask, token, services } = await fixture(t);
  assert.equal((await ask("/health", { tcp: true, headers: HEADERS })).status, 204);
  const call = (access?: string): Promise<{ status: number }> =>
    ask("/nothing", { tcp: true, headers: { ...HEADERS, ...(access === undefined ? {} : { "x-access-token": access }) } });
  assert.equal((await call()).status, 401);
  assert.equal((await call("wrong")).status, 401);
  assert.equal((await call(services.accessTokens.of({ ...SANDBOX, id: "sb-other" }, "envd"))).status, 401);
  assert.equal((await call(token)).status, 405);
  services.tokens.rotate("ci");
  assert.equal((await call(token)).status, 401, "a token that was replaced opens nothing any more");
});

test("a request without a sandbox's name is found by its token or its signature", async (t) => {
  const { ask, token } = await fixture(t);
  assert.equal((await ask("/health", { tcp: true, headers: { "x-access-token": token } })).status, 204);
  assert.equal((await ask("/health", { tcp: true })).status, 401);
  const signed = (expiration: string | null): string => {
    const signature = signatureOf({ path: "a.txt", operation: "read", user: "", expiration }, token);
    const query = new URLSearchParams({ path: "a.txt", signature, ...(expiration === null ? {} : { signature_expiration: expiration }) });
    return `/files?${query.toString()}`;
  };
  const old = await ask(signed("1000"), { tcp: true });
  assert.equal(old.status, 401);
  assert.match(String(old.json()["message"]), /signature is already expired/);
  const other = await ask(signed(null).replace("a.txt", "b.txt"), { tcp: true });
  assert.equal(other.status, 401);
});

test("errors of calls have Connect's shape", async (t) => {
  const { ask, token } = await fixture(t);
  const { status, json } = await ask("/process.Process/Nothing", { tcp: true, headers: { ...HEADERS, "x-access-token": token }, body: {} });
  assert.deepEqual([status, json()["code"]], [501, "unimplemented"]);
});

test("too many sandboxes are a matter of rate to E2B's SDKs, and what is not there is said to be so", async (t) => {
  const { ask } = await fixture(t, {
    create: async () => {
      throw new ForkdError("LIMIT_REACHED", "Cannot fork: there are too many.");
    },
  });
  const full = await ask("/v2/sandboxes", { body: { templateID: "mine" } });
  assert.deepEqual([full.status, full.json()["code"]], [429, 429]);
  const volumes = await ask("/v2/sandboxes", { body: { templateID: "mine", volumeMounts: [{ name: "a", path: "/a" }] } });
  assert.deepEqual([volumes.status, volumes.json()["error_code"]], [501, "UNSUPPORTED"]);
  const secrets = await ask("/secrets");
  assert.deepEqual([secrets.status, secrets.json()["code"]], [501, 501]);
  const unknown = await ask("/sandboxes/x/y/z");
  assert.deepEqual([unknown.status, unknown.json()["code"]], [404, 404]);
});

test("the path behind which the router finds it is nobody's", async (t) => {
  const { ask } = await fixture(t);
  const { status, json } = await ask("/e2b");
  assert.deepEqual([status, json()["code"]], [404, "NOT_FOUND"]);
});
