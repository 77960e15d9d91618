// E2B's protocol over HTTP: authentication and error format.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve, type Fixture } from "../helpers/serve.ts";
import { signatureOf } from "../../src/e2b/signature.ts";
import type { TestContext } from "node:test";
import type { SnapshotInfo } from "../../src/api/snapshot.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

const ID = "sb-abcdefgh234567xy";
const THEIRS = "sbabcdefgh234567xy";
const SANDBOX = {
  ...sandboxInfo(ID),
  created_by: "ci",
  metadata: {},
  created_at_unix_ms: 1,
  expires_at_unix: null,
  network: { mode: "none" as const, allow: [], egress_limit_bytes: null },
};
const HEADERS = { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49983" };

function manager(parts: Partial<ManagerApi["sandboxes"]> = {}): ManagerApi {
  const get = (id: string): typeof SANDBOX => {
    if (id === ID) return SANDBOX;
    throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}.`);
  };
  return fakeManager({
    sandboxes: { get, list: () => ({ items: [SANDBOX], nextCursor: null }), makers: () => [SANDBOX], ...parts },
    snapshots: { get: async () => ({ metadata: {}, status: "ready" }) as SnapshotInfo },
    ports: { find: (id: string) => (id === ID ? SANDBOX : undefined) },
  });
}

async function fixture(t: TestContext, parts?: Partial<ManagerApi["sandboxes"]>): Promise<Fixture & { key: string; token: string }> {
  const served = await serve(t, { manager: manager(parts) });
  const { token: key } = served.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  return { ...served, key, token: served.services.accessTokens.of(SANDBOX, "envd") };
}

test("a token of forkd is an API key, also in E2B's form, and its scope applies", async (t) => {
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

test("a token of scope read gets no access token of a sandbox", async (t) => {
  const { ask, key, token, services } = await fixture(t);
  const { token: reader } = services.tokens.create({ name: "reader", scope: "read", max_sandboxes: null });
  const seen = await ask(`/sandboxes/${THEIRS}`, { tcp: true, headers: { "x-api-key": reader } });
  assert.deepEqual([seen.status, seen.json()["sandboxID"]], [200, THEIRS]);
  for (const kind of ["envd", "traffic"] as const) assert.ok(!seen.text.includes(services.accessTokens.of(SANDBOX, kind)), kind);
  const used = await ask(`/sandboxes/${THEIRS}`, { tcp: true, headers: { "x-api-key": key } });
  assert.equal(used.json()["envdAccessToken"], token);
});

test("a missing sandbox: 404 with a number in the API, 502 inside", async (t) => {
  const { ask } = await fixture(t);
  const outside = await ask("/sandboxes/sbabcdefgh234567zz");
  assert.deepEqual([outside.status, outside.json()["code"]], [404, 404]);
  const inside = await ask("/health", { tcp: true, headers: { ...HEADERS, "e2b-sandbox-id": "sbabcdefgh234567zz" } });
  assert.equal(inside.status, 502);
  assert.deepEqual(inside.json(), { sandboxId: "sbabcdefgh234567zz", message: "The sandbox was not found", code: 502 });
});

test("health needs no token, everything else that of the sandbox", async (t) => {
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

test("a request without a sandbox's name is assigned by its token or its signature", async (t) => {
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
  assert.deepEqual(old.json(), { code: 401, message: "signature is already expired" });
  const other = await ask(signed(null).replace("a.txt", "b.txt"), { tcp: true });
  assert.equal(other.status, 401);
});

test("failed searches for an unnamed sandbox lock an address out of the search only", async (t) => {
  let searches = 0;
  const makers = (): (typeof SANDBOX)[] => {
    searches++;
    return [SANDBOX];
  };
  const { ask, token } = await fixture(t, { makers });
  const guess = async (path: string, headers: Record<string, string> = {}): Promise<number> =>
    (await ask(path, { tcp: true, headers })).status;
  assert.equal(await guess("/files?path=a"), 401);
  assert.equal(searches, 0, "without a token or a signature nothing is searched for");
  for (let count = 0; count < 50; count++) {
    assert.equal(await guess("/files?path=a&signature=b"), 401);
    assert.equal(await guess("/envs", { "x-access-token": "no" }), 401);
  }
  assert.equal(searches, 100);
  assert.equal(await guess("/files?path=a&signature=b", { "x-access-token": "no", "e2b-traffic-access-token": "no" }), 429);
  assert.equal(await guess("/envs", { "x-access-token": token }), 429);
  assert.equal(searches, 100, "nothing is compared any more");
  assert.equal(await guess("/envs", { ...HEADERS, "x-access-token": "no" }), 401);
  assert.equal(await guess("/nothing", { ...HEADERS, "x-access-token": token }), 405);
});

test("refusals have the wording of E2B's daemon", async (t) => {
  const { ask } = await fixture(t);
  const said = async (path: string, headers: Record<string, string> = {}): Promise<unknown> =>
    (await ask(path, { tcp: true, headers: { ...HEADERS, ...headers } })).json();
  assert.deepEqual(await said("/files?path=a"), { code: 401, message: "missing signature query parameter" });
  assert.deepEqual(await said("/files?path=a&signature=v1_no"), { code: 401, message: "invalid signature" });
  const mismatch = { code: 401, message: "access token present in header but does not match" };
  assert.deepEqual(await said("/files?path=a", { "x-access-token": "no" }), mismatch);
  const needed = "unauthorized access, please provide a valid access token or method signing if supported";
  assert.deepEqual(await said("/envs"), { code: 401, message: needed });
});

test("errors of calls have Connect's shape", async (t) => {
  const { ask, token } = await fixture(t);
  const { status, json } = await ask("/process.Process/Nothing", { tcp: true, headers: { ...HEADERS, "x-access-token": token }, body: {} });
  assert.deepEqual([status, json()["code"]], [501, "unimplemented"]);
});

test("too many sandboxes are a rate limit for E2B's SDKs, and missing objects are 404", async (t) => {
  const { ask } = await fixture(t, {
    create: async () => {
      throw new ForkdError("LIMIT_REACHED", "Cannot fork: there are too many.");
    },
  });
  const full = await ask("/v2/sandboxes", { body: { templateID: "mine" } });
  assert.deepEqual([full.status, full.json()["code"]], [429, 429]);
  const volumes = await ask("/v2/sandboxes", { body: { templateID: "mine", volumeMounts: [{ name: "a", path: "/a" }] } });
  assert.deepEqual([volumes.status, volumes.json()["error_code"]], [501, "UNSUPPORTED"]);
  const masked = await ask("/v2/sandboxes", { body: { templateID: "mine", network: { maskRequestHost: "-https://abcd" } } });
  assert.deepEqual([masked.status, masked.json()["code"]], [400, 400]);
  const secrets = await ask("/secrets");
  assert.deepEqual([secrets.status, secrets.json()["code"]], [501, 501]);
  const unknown = await ask("/sandboxes/x/y/z");
  assert.deepEqual([unknown.status, unknown.json()["code"]], [404, 404]);
});

test("the router's internal path cannot be requested", async (t) => {
  const { ask } = await fixture(t);
  const { status, json } = await ask("/e2b");
  assert.deepEqual([status, json()["code"]], [404, "NOT_FOUND"]);
});

test("the audit log has the principal, and the creator of the sandbox", async (t) => {
  const { ask, key, token, services, dir } = await fixture(t, { remove: async () => undefined });
  const { token: other } = services.tokens.create({ name: "other", scope: "exec", max_sandboxes: null });
  const traffic = services.accessTokens.of(SANDBOX, "traffic");
  const signature = signatureOf({ path: "a", operation: "read", user: "", expiration: null }, token);
  const there = { ...HEADERS, "x-access-token": token };
  await ask("/nothing", { tcp: true, headers: there });
  await ask("/nothing", { headers: there });
  await ask("/nothing", {
    tcp: true,
    headers: { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": "49999", "e2b-traffic-access-token": traffic },
  });
  await ask(`/files?path=a&signature=${encodeURIComponent(signature)}`, { tcp: true, headers: HEADERS });
  await ask(`/sandboxes/${THEIRS}`, { tcp: true, method: "DELETE", headers: { "x-api-key": other } });
  await ask(`/v1/sandboxes/${ID}`, { tcp: true, token: key });
  await ask("/envs", { tcp: true, headers: { ...HEADERS, "x-access-token": "no" } });
  await services.audit?.flush();
  const lines = (await readFile(join(dir, "audit.log"), "utf8")).trim().split("\n");
  const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual(
    entries.map(({ principal, maker, sandbox }) => [principal, maker, sandbox]),
    [
      ["access:envd", "ci", ID],
      ["local", "ci", ID],
      ["access:traffic", "ci", ID],
      ["access:signature", "ci", ID],
      ["other", "ci", ID],
      ["ci", "ci", ID],
      [null, null, ID],
    ],
  );
});

test("a token of scope read measures sandboxes, and runs nothing in them", async (t) => {
  const measured = { cpuUsedPct: 50, memUsed: 1, memTotal: 2, memCache: 1, diskUsed: 3, diskTotal: 4 };
  let answer = async (): Promise<typeof measured | undefined> => measured;
  const exec = async (): Promise<never> => assert.fail("a program is run");
  const execution = { exec, metrics: async () => answer() } as unknown as ManagerApi["execution"];
  const { ask, services } = await serve(t, { manager: { ...manager(), execution } });
  const { token } = services.tokens.create({ name: "reader", scope: "read", max_sandboxes: null });
  const get = async (path: string): Promise<unknown> => {
    const { status, json } = await ask(path, { tcp: true, headers: { "x-api-key": token } });
    assert.equal(status, 200, path);
    return json();
  };
  const [one, many] = [`/sandboxes/${THEIRS}/metrics`, `/sandboxes/metrics?sandbox_ids=${THEIRS}`];
  const [metrics] = (await get(one)) as (typeof measured)[];
  assert.deepEqual({ ...measured, ...metrics }, metrics);
  assert.deepEqual(Object.keys(((await get(many)) as { sandboxes: object }).sandboxes), [THEIRS]);
  answer = async () => undefined;
  assert.deepEqual([await get(one), await get(many)], [[], { sandboxes: {} }], "an agent of an earlier version");
  answer = async () => Promise.reject(new ForkdError("AGENT_TIMEOUT", "The guest's agent did not answer."));
  assert.deepEqual(await get(many), { sandboxes: {} });
});

test("replaced access tokens end at once, with their running requests", async (t) => {
  const update = async (): Promise<typeof SANDBOX> => SANDBOX;
  const { ask, key, token, services } = await fixture(t, { update });
  const headers = { ...HEADERS, "x-access-token": token };
  assert.equal((await ask("/nothing", { tcp: true, headers })).status, 405);
  const identity = { name: "ci", via: "envd" as const, opens: ID };
  const under = [identity, { ...identity, opens: "sb-other" }, { name: "ci" }].map((who) => ({
    controller: new AbortController(),
    identity: who,
  }));
  for (const one of under) services.inFlight.enter(one);
  const replaced = await ask(`/v1/sandboxes/${ID}`, { tcp: true, token: key, method: "PATCH", body: { rotate_access: true } });
  assert.equal(replaced.status, 200);
  assert.deepEqual(
    under.map(({ controller }) => controller.signal.aborted),
    [true, false, false],
  );
  for (const one of under) services.inFlight.leave(one);
  assert.equal((await ask("/nothing", { tcp: true, headers })).status, 401);
  const fresh = String((await ask(`/sandboxes/${THEIRS}`, { tcp: true, headers: { "x-api-key": key } })).json()["envdAccessToken"]);
  assert.equal((await ask("/nothing", { tcp: true, headers: { ...HEADERS, "x-access-token": fresh } })).status, 405);
});
