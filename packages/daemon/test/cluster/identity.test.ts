// Statements of gateways: what a node accepts, and what it refuses.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ClaimReader, IDENTITY_HEADER, signClaim, VALID_MS, type Claim } from "../../src/cluster/identity.ts";
import { serve } from "../helpers/serve.ts";

const KEY = Buffer.from("0123456789abcdef0123456789abcdef");
const OLD = Buffer.from("fedcba9876543210fedcba9876543210");
const ASKED = { method: "GET", url: "/v1/status?x=1" };
const CLAIM: Claim = {
  name: "ann",
  scope: "exec",
  project: "red",
  max_sandboxes: 3,
  stamp: "one",
  since: 10,
  remote: "192.0.2.7",
  revoked: [],
  elsewhere: null,
};

const refused = (why: RegExp) => (error: unknown) =>
  error instanceof Error && (error as { code?: string }).code === "UNAUTHORIZED" && why.test(error.message);

test("a statement is accepted once, for its own request and within its time", () => {
  let now = 1_000_000;
  const reader = new ClaimReader([KEY], { nowMs: () => now });
  const header = signClaim(CLAIM, ASKED, [KEY], now);
  assert.deepEqual(reader.read(header, ASKED), CLAIM);
  assert.throws(() => reader.read(header, ASKED), refused(/used before/));
  assert.throws(() => reader.read(signClaim(CLAIM, ASKED, [KEY], now), { ...ASKED, method: "POST" }), refused(/another request/));
  assert.throws(() => reader.read(signClaim(CLAIM, ASKED, [KEY], now), { ...ASKED, url: "/v1/tokens" }), refused(/another request/));
  const late = signClaim(CLAIM, ASKED, [KEY], now);
  now += VALID_MS;
  assert.throws(() => reader.read(late, ASKED), refused(/moment/));
  assert.throws(() => reader.read(signClaim(CLAIM, ASKED, [KEY], now + 2 * VALID_MS), ASKED), refused(/moment/));
  const again = signClaim(CLAIM, ASKED, [KEY], now);
  reader.read(again, ASKED);
  now += VALID_MS / 2 - 1;
  assert.throws(() => reader.read(again, ASKED), refused(/used before/), "also in the next period");
});

test("only keys of the cluster sign, and two are valid during a rotation", () => {
  const reader = new ClaimReader([KEY, OLD]);
  reader.read(signClaim(CLAIM, ASKED, [OLD]), ASKED);
  reader.read(signClaim(CLAIM, ASKED, [KEY, OLD]), ASKED);
  reader.keys = [KEY];
  assert.throws(() => reader.read(signClaim(CLAIM, ASKED, [OLD]), ASKED), refused(/signature/));
  const [body = "", signature = ""] = signClaim(CLAIM, ASKED, [KEY]).split(".");
  const other = Buffer.from(Buffer.from(body, "base64url").toString().replace('"exec"', '"admin"')).toString("base64url");
  for (const forged of [`${other}.${signature}`, `${body}.`, body, "", ".", `${body}.${signature}.x`, "a".repeat(20_000)])
    assert.throws(() => reader.read(forged, ASKED), refused(/./), forged.slice(0, 40));
});

test("no gateway can state a name of the daemon's own", () => {
  const reader = new ClaimReader([KEY]);
  for (const name of ["local", "daemon"])
    assert.throws(() => reader.read(signClaim({ ...CLAIM, name }, ASKED, [KEY]), ASKED), refused(/own/));
});

test("the header counts only on TCP and only with the setting", async (t) => {
  const ask = { method: "GET", url: "/v1/config" };
  const header = (): Record<string, string> => ({ [IDENTITY_HEADER]: signClaim({ ...CLAIM, scope: "read" }, ask, [KEY]) });
  const without = await serve(t);
  assert.equal((await without.ask("/v1/config", { tcp: true, headers: header() })).status, 401);
  const within = await serve(t, { cluster: new ClaimReader([KEY]) });
  assert.equal((await within.ask("/v1/config", { tcp: true, headers: header() })).status, 403, "the stated scope is read");
  assert.equal((await within.ask("/v1/config", { headers: header() })).status, 200, "on the socket, its user asks");
});

test("a revoked or replaced token ends what was derived from it", async (t) => {
  const { services, ask } = await serve(t, { cluster: new ClaimReader([KEY]) });
  const state = async (over: Partial<Claim>): Promise<void> => {
    const header = signClaim({ ...CLAIM, scope: "read", ...over }, { method: "GET", url: "/version" }, [KEY]);
    assert.equal((await ask("/version", { tcp: true, headers: { [IDENTITY_HEADER]: header } })).status, 200);
  };
  const sandbox = { id: "sb-aaaaaaaaaaaaaaaa", created_by: "ann" };
  await state({});
  const { accessTokens, previews, tokens } = services;
  const access = accessTokens.of(sandbox, "envd");
  const { token: link } = previews.create({ sandbox: sandbox.id, port: 80, expiresInSecs: 60, principal: "ann" });
  assert.equal(tokens.maxSandboxesOf("ann"), 3);
  await state({});
  assert.ok(accessTokens.opens(access, sandbox, "envd") && previews.verify(link));
  await state({ stamp: "two", since: 20 });
  assert.ok(!accessTokens.opens(access, sandbox, "envd") && !previews.verify(link), "replaced");
  const second = accessTokens.of(sandbox, "envd");
  await state({ stamp: "one", since: 10 });
  assert.ok(accessTokens.opens(second, sandbox, "envd"), "an older statement that arrives late changes nothing");
  await state({ name: "gateway", revoked: [["ann", 30]] });
  assert.ok(!accessTokens.opens(second, sandbox, "envd"), "revoked");
});
