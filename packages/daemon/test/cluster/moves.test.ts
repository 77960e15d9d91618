// Steps of a move over HTTP: only a gateway's own statement is enough, and what has moved is answered with its place.

import assert from "node:assert/strict";
import { createSecretKey, type KeyObject } from "node:crypto";
import { test } from "node:test";
import { ClaimReader, IDENTITY_HEADER, signClaim } from "../../src/cluster/identity.ts";
import { fakeManager } from "../helpers/fake-manager.ts";
import { serve, type Fixture, type Reply } from "../helpers/serve.ts";

const ID = "sb-aaaa222233334444";
const KEY = createSecretKey(Buffer.from("0123456789abcdef0123456789abcdef"));

async function byGateway({ ask }: Fixture, path: string, body?: object, keys: readonly KeyObject[] = [KEY]): Promise<Reply> {
  const method = body ? "POST" : "GET";
  const claim = {
    name: "gateway",
    scope: "operator",
    project: "*",
    max_sandboxes: null,
    stamp: null,
    since: 0,
    remote: "gateway",
  } as const;
  const header = signClaim({ ...claim, revoked: [], elsewhere: null }, { method, url: path }, keys);
  return ask(path, { tcp: true, method, headers: { [IDENTITY_HEADER]: header }, ...(body ? { body } : {}) });
}

test("only a gateway of the cluster moves sandboxes: an operator's token does not", async (t) => {
  const stayed: string[] = [];
  const manager = fakeManager({ moves: { stay: async (id: string) => void stayed.push(id) } });
  const fixture = await serve(t, { manager, cluster: new ClaimReader([KEY]) });
  const body = { step: "stay", id: ID };
  const { token } = fixture.services.tokens.create({
    name: "op",
    project: "default",
    scope: "operator",
    max_sandboxes: null,
    expires_in_secs: null,
  });
  const byOperator = await fixture.ask("/v1/cluster/moves", { tcp: true, token, body });
  assert.deepEqual([byOperator.status, byOperator.json()["code"]], [403, "FORBIDDEN"]);
  assert.equal((await fixture.ask("/v1/cluster/moves", { body })).status, 403, "nor does the user of the socket");
  const forged = await byGateway(fixture, "/v1/cluster/moves", body, [createSecretKey(Buffer.from("another key of 32 bytes, or more"))]);
  assert.equal(forged.status, 401);
  assert.deepEqual(stayed, []);
  assert.equal((await byGateway(fixture, "/v1/cluster/moves", body)).status, 200);
  assert.deepEqual(stayed, [ID]);
});

test("a gateway learns in every protocol that a sandbox has moved; a request without a statement does not", async (t) => {
  const manager = fakeManager({ moves: { nodeOf: (id: string) => (id === ID ? "bbbb" : undefined) } });
  const fixture = await serve(t, { manager, cluster: new ClaimReader([KEY]) });
  for (const path of [`/v1/sandboxes/${ID}`, `/v1/sandboxes/${ID}/proxy/80/`, `/sandboxes/${ID.replace("-", "")}`]) {
    const { status, headers } = await byGateway(fixture, path);
    assert.equal(headers["x-forkd-moved"], `${ID} bbbb`, path);
    assert.ok(status >= 400, path);
  }
  const { status, json } = await byGateway(fixture, `/v1/sandboxes/${ID}`);
  assert.equal(status, 421);
  assert.deepEqual(json()["details"], { sandbox: ID, node: "bbbb" });
  const direct = await fixture.ask(`/v1/sandboxes/${ID}/proxy/80/`, { tcp: true });
  assert.equal(direct.headers["x-forkd-moved"], undefined);
});
