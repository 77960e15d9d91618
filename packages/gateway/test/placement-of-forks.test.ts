// Forks through a gateway to fake nodes: holders first, refusals, movement, keys, tags.

import assert from "node:assert/strict";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { FakeNode, problem, snapshot } from "./helpers/fake-node.ts";
import { ADMIN, serve, until, type Fixture } from "./helpers/gateway.ts";
import type { TestContext } from "node:test";

const APP = "sn-aaaa222222222222";
type Body = Record<string, unknown>;

async function threeNodes(t: TestContext): Promise<FakeNode[]> {
  const nodes = await Promise.all(["aaaa", "bbbb", "cccc"].map(async (code) => FakeNode.start(t, code)));
  for (const node of nodes)
    node.routes.set("POST /v1/sandboxes", ({ body }) => {
      const { n = 1 } = JSON.parse(body) as { n?: number };
      if (node.sandboxes + n > node.maxSandboxes) return { status: 503, body: problem("LIMIT_REACHED", "Cannot fork: it is full.") };
      node.sandboxes += n;
      return { status: 201, body: Array.from({ length: n }, (_, at) => ({ id: `sb-${node.code}${String(at).padStart(12, "2")}` })) };
    });
  return nodes;
}

const fork = async ({ ask }: Pick<Fixture, "ask">, body: Body, headers: Record<string, string> = {}): ReturnType<Fixture["ask"]> =>
  ask("/v1/sandboxes", { body: { snapshot_tag: "app", ...body }, headers });

test("forks go to nodes that hold the snapshot", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  a.snapshots = b.snapshots = [snapshot("app", APP)];
  const fixture = await serve(t, [a, b, c]);
  for (let i = 0; i < 40; i++) assert.equal((await fork(fixture, {})).status, 201);
  assert.equal(c.sandboxes, 0);
  assert.equal(a.sandboxes + b.sandboxes, 40);
  assert.ok(a.sandboxes > 10 && b.sandboxes > 10, `${a.sandboxes} and ${b.sandboxes}`);
});

test("a node that refuses is followed by the next, and the last refusal is the answer", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  a.snapshots = b.snapshots = [snapshot("app", APP)];
  const fixture = await serve(t, [a, b, c]);
  // reports are a second old: the node knows better
  const refuse = (): { status: number; body: object } => ({ status: 503, body: problem("LIMIT_REACHED", "Cannot fork: it is full.") });
  a.routes.set("POST /v1/sandboxes", refuse);
  for (let i = 0; i < 5; i++) assert.equal((await fork(fixture, {})).status, 201);
  assert.equal(b.sandboxes, 5);
  a.routes.set("POST /v1/sandboxes", () => ({ status: 400, body: problem("BAD_REQUEST", "Cannot accept the request.") }));
  b.routes.set("POST /v1/sandboxes", () => ({ status: 400, body: problem("BAD_REQUEST", "Cannot accept the request.") }));
  const before = a.seen.length + b.seen.length;
  assert.equal((await fork(fixture, {})).status, 400);
  assert.equal(a.seen.length + b.seen.length, before + 1, "a wrong request is wrong everywhere");
});

test("a connection that breaks after the request is not repeated on another node", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  a.snapshots = b.snapshots = [snapshot("app", APP)];
  const fixture = await serve(t, [a, b, c]);
  for (const node of [a, b])
    node.routes.set("POST /v1/sandboxes", (_seen, response) => {
      response.socket?.destroy();
      return undefined;
    });
  const { status, body } = await fork(fixture, {});
  assert.equal(status, 503);
  assert.equal((body as { code: string }).code, "NODE_UNREACHABLE");
  const asked = [...a.seen, ...b.seen, ...c.seen].filter(({ method }) => method === "POST");
  assert.equal(asked.length, 1);
});

test("where no holder has room, the snapshot is moved once, without what the receiver has", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  const base = snapshot("base", "sn-aaaa333333333333");
  a.snapshots = [base, snapshot("app", APP, { parent_tag: "base", delta_bytes: 1000 })];
  b.snapshots = [base];
  a.sandboxes = a.maxSandboxes;
  c.sandboxes = c.maxSandboxes;
  const fixture = await serve(t, [a, b, c]);
  a.routes.set("GET /v1/snapshots/*", ({ url }, response) => {
    assert.match(url, new RegExp(`^/v1/snapshots/${APP}/pack\\?level=1&without=sn-aaaa333333333333$`));
    response.writeHead(200, { "content-type": "application/vnd.forkd.pack", "content-length": "9" });
    setTimeout(() => response.end("the delta"), 200);
    return undefined;
  });
  b.routes.set("POST /v1/packs", ({ body, url, claim }) => {
    assert.equal(body, "the delta");
    assert.match(url, /keep_network=true&tag=app/);
    assert.equal(claim.name, "gateway");
    b.snapshots = [base, snapshot("app", APP)];
    return { status: 201, body: {} };
  });
  const replies = await Promise.all(Array.from({ length: 5 }, async () => fork(fixture, {})));
  assert.deepEqual(
    replies.map(({ status }) => status),
    [201, 201, 201, 201, 201],
  );
  assert.equal(b.seen.filter(({ url }) => url.startsWith("/v1/packs")).length, 1, "one transfer for all five");
  const { moved } = (await fixture.ask("/v1/cluster")).body as { moved: object };
  assert.deepEqual(moved, { snapshots: 1, bytes: 9 });
});

test("children that no node has room for are divided, and all end if one part fails", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  for (const node of [a, b, c]) {
    node.snapshots = [snapshot("app", APP)];
    node.maxSandboxes = 4;
  }
  const fixture = await serve(t, [a, b, c]);
  const { status, body } = await fork(fixture, { n: 10 });
  assert.equal(status, 201);
  assert.equal((body as unknown[]).length, 10);
  assert.equal(a.sandboxes + b.sandboxes + c.sandboxes, 10);
  for (const node of [a, b, c]) node.sandboxes = 0;
  // two reports of each node, which replace what the gateway counted itself
  await sleep(2500);
  for (const node of [a, b, c])
    node.routes.set("DELETE /v1/sandboxes/*", () => {
      node.sandboxes--;
      return { status: 204 };
    });
  c.routes.set("POST /v1/sandboxes", () => ({ status: 507, body: problem("NO_SPACE", "Cannot fork: the disk is full.") }));
  const failed = await fork(fixture, { n: 12 });
  assert.equal(failed.status, 507);
  assert.deepEqual([a.sandboxes, b.sandboxes], [0, 0]);
});

test("a key always reaches the same node, and no other when that one cannot serve it", async (t) => {
  const [a, b, c] = (await threeNodes(t)) as [FakeNode, FakeNode, FakeNode];
  for (const node of [a, b, c]) node.snapshots = [snapshot("app", APP)];
  const one = await serve(t, [a, b, c]);
  const two = await serve(t, [a, b, c], { dir: one.dir });
  const nodesOf = (key: string): string[] =>
    [a, b, c].flatMap((node) => node.seen.filter(({ headers }) => headers["idempotency-key"] === key).map(() => node.code));
  const used = new Set<string>();
  for (let i = 0; i < 12; i++) {
    for (const fixture of [one, two, one]) assert.equal((await fork(fixture, {}, { "idempotency-key": `key-${i}` })).status, 201);
    const nodes = nodesOf(`key-${i}`);
    assert.equal(nodes.length, 3);
    assert.equal(new Set(nodes).size, 1, nodes.join());
    used.add(nodes[0] ?? "");
  }
  assert.ok(used.size > 1, "keys are spread");
  const [owner] = nodesOf("key-0");
  const node = [a, b, c].find(({ code }) => code === owner) as FakeNode;
  await node.close();
  const refused = await fork(one, {}, { "idempotency-key": "key-0" });
  assert.equal(refused.status, 503);
  assert.equal((refused.body as { code: string }).code, "NODE_UNREACHABLE");
});

test("a tag means one snapshot in the cluster, also with two gateways at once", async (t) => {
  const [a, b] = (await threeNodes(t)) as [FakeNode, FakeNode];
  const one = await serve(t, [a, b]);
  const two = await serve(t, [a, b], { dir: one.dir });
  const sandboxes = { a: "sb-aaaa222222222222", b: "sb-bbbb222222222222" };
  for (const [node, id] of [
    [a, sandboxes.a],
    [b, sandboxes.b],
  ] as const)
    node.routes.set(`POST /v1/sandboxes/${id}/branch`, ({ body }) => {
      const { tag = `br-${node.code}222222222222` } = JSON.parse(body) as { tag?: string };
      node.snapshots = [...node.snapshots, snapshot(tag, `sn-${node.code}${String(node.snapshots.length).padStart(12, "2")}`)];
      node.routes.set(`GET /v1/snapshots/${tag}`, () => ({ body: { tag } }));
      return { status: 201, body: { tag } };
    });
  const branch = async ({ ask }: Fixture, id: string, body: Body): ReturnType<Fixture["ask"]> =>
    ask(`/v1/sandboxes/${id}/branch`, { body });
  const both = await Promise.all([branch(one, sandboxes.a, { tag: "mine" }), branch(two, sandboxes.b, { tag: "mine" })]);
  const refused = both.filter(({ status }) => status === 409);
  assert.deepEqual([refused.length, both.filter(({ status }) => status === 201).length], [1, 1]);
  for (const { body } of refused) assert.equal((body as { code: string }).code, "EXISTS");
  for (let i = 0; i < 3; i++) assert.equal((await branch(two, sandboxes.a, {})).status, 201, "automatic tags need no entry");
});

test("while the state cannot be written, forks and branches without a tag continue, and tokens stay valid", async (t) => {
  const [a] = (await threeNodes(t)) as [FakeNode];
  a.snapshots = [snapshot("app", APP)];
  const fixture = await serve(t, [a]);
  const { token } = (await fixture.ask("/v1/tokens", { body: { name: "ann", scope: "exec" } })).body as { token: string };
  const id = "sb-aaaa222222222222";
  a.routes.set(`POST /v1/sandboxes/${id}/branch`, () => ({ status: 201, body: {} }));
  const folder = join(fixture.dir, "state");
  // not by its mode: root may write everywhere
  await rename(folder, `${folder}.away`);
  await writeFile(folder, "");
  try {
    assert.equal((await fixture.ask("/v1/sandboxes", { token, body: { snapshot_tag: "app" } })).status, 201);
    assert.equal((await fixture.ask(`/v1/sandboxes/${id}/branch`, { token, body: {} })).status, 201);
    for (const [path, body] of [
      [`/v1/sandboxes/${id}/branch`, { tag: "x" }],
      ["/v1/tokens", { name: "bob" }],
    ] as const) {
      const refused = await fixture.ask(path, { token: ADMIN, body });
      assert.equal(refused.status, 503);
      assert.equal((refused.body as { code: string }).code, "CLUSTER_STATE_UNAVAILABLE");
    }
  } finally {
    await rm(folder);
    await rename(`${folder}.away`, folder);
  }
  await until(async () => (await fixture.ask("/v1/tokens", { body: { name: "bob" } })).status === 201);
});
