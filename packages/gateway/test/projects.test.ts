// Projects of a cluster on fake nodes: who sees what, tags, and quotas over all nodes.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { FakeNode, problem, snapshot } from "./helpers/fake-node.ts";
import { ADMIN, serve, until, type Fixture } from "./helpers/gateway.ts";

type Made = { status: number; token: string };

async function member(fixture: Fixture, project: string, quota: object = {}): Promise<string> {
  assert.equal((await fixture.ask("/v1/projects", { body: { name: project, ...quota } })).status, 201);
  const { status, body } = await fixture.ask("/v1/tokens", { body: { name: "ci", scope: "admin", project } });
  assert.equal(status, 201);
  return (body as Made).token;
}

async function twoNodes(t: TestContext): Promise<[FakeNode, FakeNode]> {
  return [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
}

test("a token works in its project, under a principal that names it; an operator chooses the project", async (t) => {
  const [a] = await twoNodes(t);
  const fixture = await serve(t, [a]);
  const acme = await member(fixture, "acme");
  const other = await member(fixture, "other");
  a.routes.set("GET /v1/sandboxes*", ({ claim }) => ({ body: [claim.project, claim.name] }));
  const seenBy = async (token: string, project?: string): Promise<unknown> => {
    const headers = project === undefined ? {} : { "x-forkd-project": project };
    return (await fixture.ask("/v1/sandboxes/sb-aaaa222222222222", { token, headers })).body;
  };
  assert.deepEqual(await seenBy(acme), ["acme", "acme/ci"]);
  assert.deepEqual(await seenBy(other), ["other", "other/ci"]);
  assert.deepEqual(await seenBy(ADMIN), ["default", "token-file"]);
  assert.deepEqual(await seenBy(ADMIN, "acme"), ["acme", "token-file"]);
  assert.equal((await fixture.ask("/v1/sandboxes", { headers: { "x-forkd-project": "*" } })).status, 200);
  for (const [token, project] of [
    [ADMIN, "nothing"],
    [acme, "other"],
    [acme, "nothing"],
  ] as const)
    assert.equal((await fixture.ask("/v1/sandboxes", { token, headers: { "x-forkd-project": project } })).status, 404);
});

test("tokens are listed, rotated and revoked in their own project only", async (t) => {
  const [a] = await twoNodes(t);
  const fixture = await serve(t, [a]);
  const acme = await member(fixture, "acme");
  await member(fixture, "other");
  const names = async (token: string): Promise<string[]> =>
    ((await fixture.ask("/v1/tokens", { token })).body as { name: string; project: string }[]).map(
      ({ project, name }) => `${project}/${name}`,
    );
  assert.deepEqual(await names(acme), ["acme/ci"]);
  assert.equal((await fixture.ask("/v1/tokens/token-file", { token: acme, method: "DELETE" })).status, 404);
  assert.equal((await fixture.ask("/v1/tokens", { token: acme, body: { name: "x", scope: "read", project: "other" } })).status, 404);
  assert.equal((await fixture.ask("/v1/tokens", { token: acme, body: { name: "x", scope: "operator" } })).status, 403);
  assert.equal((await fixture.ask("/v1/tokens/ci", { method: "DELETE" })).status, 404, "default has no such token");
  const rotated = await fixture.ask("/v1/tokens/ci/rotate", { token: acme, body: {} });
  assert.equal(rotated.status, 200);
  assert.equal((await fixture.ask("/v1/tokens", { token: acme })).status, 401);
  const { token } = rotated.body as Made;
  assert.equal((await fixture.ask("/v1/tokens/ci", { token, method: "DELETE" })).status, 204);
  assert.equal((await fixture.ask("/v1/tokens", { token })).status, 401);
  await until(() => a.revoked.has("acme/ci"));
});

test("projects reach all nodes, also one that was away, and a project that owns something stays", async (t) => {
  const [a, b] = await twoNodes(t);
  const fixture = await serve(t, [a, b]);
  await b.close();
  await until(async () => ((await fixture.ask("/v1/cluster")).body as { nodes: { state: string }[] }).nodes[1]?.state === "down");
  const token = await member(fixture, "acme", { sandboxes: 3 });
  assert.deepEqual((a.projects.get("acme") as { quota: { sandboxes: number } }).quota.sandboxes, 3);
  const remove = async (): Promise<{ status: number; code: string }> => {
    const { status, body } = await fixture.ask("/v1/projects/acme", { method: "DELETE" });
    return { status, code: ((body as { code?: string } | "") || { code: "" }).code ?? "" };
  };
  assert.equal((await remove()).code, "IN_USE", "its token");
  await fixture.ask("/v1/tokens/ci", { token, method: "DELETE" });
  assert.equal((await remove()).code, "NODE_UNREACHABLE", "a node that does not answer may have something of it");
  await b.listen();
  await until(() => b.projects.has("acme"));
  await fixture.ask("/v1/projects/acme", { method: "PATCH", body: { sandboxes: 5 } });
  for (const node of [a, b]) assert.equal((node.projects.get("acme") as { quota: { sandboxes: number } }).quota.sandboxes, 5);
  b.owners.add("acme");
  assert.deepEqual(await remove(), { status: 409, code: "IN_USE" });
  assert.ok(a.projects.has("acme"), "a node that had removed it has it again");
  b.owners.clear();
  assert.equal((await remove()).status, 204);
  assert.deepEqual([a.projects.has("acme"), b.projects.has("acme")], [false, false]);
  assert.equal((await fixture.ask("/v1/projects/default", { method: "DELETE" })).status, 400);
  assert.equal((await fixture.ask("/v1/projects", { body: { name: "default" } })).status, 409);
});

test("one tag in two projects means two snapshots; private ones do not exist for others, public ones do", async (t) => {
  const [a, b] = await twoNodes(t);
  a.snapshots = [
    snapshot("work", "sn-aaaa222222222222", { project: "acme" }),
    snapshot("base", "sn-aaaa333333333333", { visibility: "public" }),
  ];
  const fixture = await serve(t, [a, b], { random: () => 0.99 });
  const acme = await member(fixture, "acme");
  const other = await member(fixture, "other");
  for (const node of [a, b]) {
    node.routes.set("POST /v1/sandboxes", ({ claim, body }) => ({
      status: 201,
      body: [{ node: node.code, project: claim.project, body: JSON.parse(body) as unknown }],
    }));
    node.routes.set("POST /v1/snapshots", ({ claim }) => ({ status: 201, body: { node: node.code, project: claim.project } }));
  }
  const fork = async (token: string, tag: string): Promise<string> => {
    const { status, body } = await fixture.ask("/v1/sandboxes", { token, body: { snapshot_tag: tag, n: 1 } });
    return status === 201 ? ((body as { node: string }[])[0]?.node ?? "") : String(status);
  };
  assert.equal(await fork(acme, "work"), "aaaa", "where it is");
  assert.equal(await fork(other, "default/base"), "aaaa", "where the public one is");
  const before = a.seen.length;
  for (const tag of ["acme/work", "sn-aaaa222222222222"]) {
    // nothing is placed or moved for it: a node says that there is none
    for (const node of [a, b])
      node.routes.set("POST /v1/sandboxes", () => ({ status: 404, body: problem("NOT_FOUND", "There is no snapshot.") }));
    assert.equal(await fork(other, tag), "404");
  }
  assert.ok(!a.seen.slice(before).some(({ url }) => url.includes("pack")));
  const make = async (token: string, tag: string): Promise<number> => (await fixture.ask("/v1/snapshots", { token, body: { tag } })).status;
  assert.equal(await make(other, "work"), 201, "acme's tag does not count");
  const shown = async (token: string): Promise<string[]> =>
    ((await fixture.ask("/v1/cluster", { token })).body as { nodes: { snapshots: { tag: string }[] }[] }).nodes.flatMap(({ snapshots }) =>
      snapshots.map(({ tag }) => tag),
    );
  assert.deepEqual(await shown(acme), ["work"]);
  assert.deepEqual(await shown(other), []);
});

test("nodes learn what a project with limits uses on the others, and its use is the sum", async (t) => {
  const [a, b] = await twoNodes(t);
  a.snapshots = [snapshot("base", "sn-aaaa333333333333", { visibility: "public" })];
  a.used = { sandboxes: 2, memory_mib: 256 };
  b.used = { sandboxes: 3 };
  const fixture = await serve(t, [a, b]);
  const free = await member(fixture, "free");
  const acme = await member(fixture, "acme", { sandboxes: 6 });
  const { body } = await fixture.ask("/v1/quota", { token: acme });
  const { project, limits, used } = body as {
    project: string;
    limits: { sandboxes: number };
    used: { sandboxes: number; memory_mib: number };
  };
  assert.deepEqual([project, limits.sandboxes, used.sandboxes, used.memory_mib], ["acme", 6, 5, 256]);
  a.routes.set("POST /v1/sandboxes", ({ claim }) => ({ status: 201, body: [{ elsewhere: claim.elsewhere?.sandboxes ?? null }] }));
  const elsewhere = async (token: string): Promise<unknown> =>
    ((await fixture.ask("/v1/sandboxes", { token, body: { snapshot_tag: "default/base" } })).body as { elsewhere: unknown }[])[0]
      ?.elsewhere;
  assert.equal(await elsewhere(acme), 3);
  b.used = { sandboxes: 4 };
  assert.equal(await elsewhere(acme), 4, "asked anew for each fork");
  assert.equal(await elsewhere(free), null, "nothing is asked for a project without limits");
});

test("forks through one gateway cannot exceed a limit together on several nodes", async (t) => {
  const nodes = await twoNodes(t);
  for (const node of nodes) {
    node.snapshots = [snapshot("base", "sn-aaaa333333333333", { visibility: "public" })];
    node.used = { sandboxes: 0 };
    node.routes.set("POST /v1/sandboxes", async ({ claim }) => {
      await new Promise((resolve) => void setTimeout(resolve, 20));
      const all = (node.used["sandboxes"] ?? 0) + (claim.elsewhere?.sandboxes ?? 0);
      if (all >= 3) return { status: 429, body: problem("QUOTA_EXCEEDED", "Cannot do this.") };
      node.used = { sandboxes: (node.used["sandboxes"] ?? 0) + 1 };
      return { status: 201, body: [{}] };
    });
  }
  const fixture = await serve(t, nodes);
  const acme = await member(fixture, "acme", { sandboxes: 3 });
  const replies = await Promise.all(
    Array.from({ length: 9 }, async () => fixture.ask("/v1/sandboxes", { token: acme, body: { snapshot_tag: "default/base" } })),
  );
  assert.deepEqual(replies.map(({ status }) => String(status)).toSorted(), [
    ...Array<string>(3).fill("201"),
    ...Array<string>(6).fill("429"),
  ]);
});

test("requests in a second are counted by the gateway", async (t) => {
  const [a] = await twoNodes(t);
  a.routes.set("GET /v1/sandboxes*", () => ({ body: [] }));
  const fixture = await serve(t, [a]);
  const acme = await member(fixture, "acme", { requests_per_second: 2 });
  const replies = await Promise.all(Array.from({ length: 6 }, async () => fixture.ask("/v1/sandboxes", { token: acme })));
  assert.ok(replies.some(({ status }) => status === 429));
  assert.ok(a.seen.length <= 4, "refused requests do not reach a node");
});
