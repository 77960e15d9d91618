// Snapshots of WarmSnapshots on two machines without VMs, by gateways of which one holds the Lease.

import assert from "node:assert/strict";
import { createSecretKey } from "node:crypto";
import { test, type TestContext } from "node:test";
import { Lease } from "../../src/kubernetes/lease.ts";
import { RecordSecret, type SecretObject } from "../../src/kubernetes/record-secret.ts";
import { KubernetesState } from "../../src/kubernetes/state.ts";
import { TagObjects } from "../../src/kubernetes/tag-objects.ts";
import { WarmKeeper, type KeeperParts } from "../../src/kubernetes/warm-keeper.ts";
import { GROUP, RESOURCE, type WarmSnapshot, type WarmSpec, type WarmStatus } from "../../src/kubernetes/warm-snapshot.ts";
import { Nodes } from "../../src/nodes/nodes.ts";
import { Signer } from "../../src/nodes/signer.ts";
import { Transfers } from "../../src/nodes/transfers.ts";
import { Uses } from "../../src/nodes/uses.ts";
import { ClusterProjects } from "../../src/state/projects.ts";
import { ClusterTokens } from "../../src/state/tokens.ts";
import { FakeApi } from "../helpers/fake-api.ts";
import { FakeNode, KEY, snapshot } from "../helpers/fake-node.ts";
import { until } from "../helpers/gateway.ts";

const WARM = "/apis/forkd.dev/v1alpha1/namespaces/forkd/warmsnapshots";
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/forkd/leases";
const APP = "sn-aaaa222222222222";
const SPEC: WarmSpec = { project: "ann", tag: "app", source: "node:aaaa", replicas: 2, pool: 0, keep: true };

test("a snapshot of a project is brought to as many machines as wanted, in its project, with its pool and those of others", async (t) => {
  const { api, a, b, projects } = await cluster(t, (project, tag) => (project === "ann" && tag === "app" ? 2 : 0));
  await projects.create({ name: "ann" });
  a.snapshots = [snapshot("app", APP, { project: "ann" })];
  a.emit("snapshot.created", {});
  a.routes.set("GET /v1/snapshots/*", ({ claim }, response) => {
    assert.equal(claim.project, "ann");
    response.writeHead(200, { "content-type": "application/vnd.forkd.pack", "content-length": "4" }).end("pack");
    return undefined;
  });
  b.routes.set("POST /v1/packs", ({ claim }) => {
    assert.equal(claim.project, "ann");
    b.snapshots = [snapshot("app", APP, { project: "ann" })];
    return { status: 201, body: {} };
  });
  for (const node of [a, b])
    node.routes.set("PATCH /v1/snapshots/app", ({ body, claim }) => {
      assert.equal(claim.project, "ann");
      node.snapshots = [snapshot("app", APP, { project: "ann", ...(JSON.parse(body) as object) })];
      return { body: {} };
    });
  api.put("app", { spec: { ...SPEC, pool: 3 } }, WARM);
  await until(() => statusOf(api).ready === 2);
  const { nodes, snapshot: id, source } = statusOf(api);
  assert.deepEqual({ id, source }, { id: APP, source: "node:aaaa" });
  assert.deepEqual(nodes, [
    { name: "ma", state: "Ready" },
    { name: "mb", state: "Ready" },
  ]);
  await until(() => [a, b].every((node) => (node.snapshots[0] as { pool: number }).pool === 5));
});

test("a cordoned machine gets no copies, and those it has count for none; one that restarts keeps its place", async (t) => {
  const { api, a, b, projects } = await cluster(t);
  await projects.create({ name: "ann" });
  a.snapshots = [snapshot("app", APP, { project: "ann" })];
  a.routes.set("GET /v1/snapshots/*", (_seen, response) => {
    response.writeHead(200, { "content-type": "application/vnd.forkd.pack", "content-length": "4" }).end("pack");
    return undefined;
  });
  b.routes.set("POST /v1/packs", () => {
    b.snapshots = [snapshot("app", APP, { project: "ann" })];
    return { status: 201, body: {} };
  });
  a.isLeaving = true;
  a.emit("snapshot.created", {});
  api.put("app", { spec: { ...SPEC, replicas: 1 } }, WARM);
  await until(() => statusOf(api).snapshot === APP);
  // three turns
  await new Promise((resolve) => void setTimeout(resolve, 3000));
  assert.deepEqual(b.snapshots, []);
  a.isLeaving = false;
  a.isCordoned = true;
  await until(() => statusOf(api).ready === 1);
  assert.deepEqual(statusOf(api).nodes, [
    { name: "ma", state: "Ready", message: "the machine is cordoned" },
    { name: "mb", state: "Ready" },
  ]);
});

test("a source is pulled once and in its project; a project that does not exist is a failure with a reason", async (t) => {
  const { api, a, b, projects } = await cluster(t);
  const pulls: string[] = [];
  for (const node of [a, b])
    node.routes.set("POST /v1/snapshots/pull", ({ body, claim }) => {
      pulls.push(`${claim.project} ${(JSON.parse(body) as { from: string }).from}`);
      node.snapshots = [snapshot("app", APP, { project: "ann" })];
      return { status: 201, body: { snapshot: { id: APP } } };
    });
  api.put("app", { spec: { ...SPEC, source: "oci://registry.example/app:1", replicas: 1 } }, WARM);
  await until(() => statusOf(api).nodes?.[0]?.state === "Failed");
  assert.match(statusOf(api).nodes?.[0]?.message ?? "", /ann/);
  assert.deepEqual(pulls, []);
  await projects.create({ name: "ann" });
  // another generation has no failures yet
  api.put("app", { spec: { ...SPEC, source: "oci://registry.example/app:2", replicas: 1 } }, WARM);
  await until(() => statusOf(api).ready === 1);
  assert.deepEqual(pulls, ["ann oci://registry.example/app:2"]);
});

test("of two gateways one holds the Lease, and the other takes it when it is given up", async (t) => {
  const { api, lease } = await cluster(t);
  await until(() => lease.isHeld);
  await using other = new Lease(await api.client(t), "forkd-gateway", "other");
  await until(() => api.seen.filter((line) => line === `GET ${LEASES}/forkd-gateway`).length >= 2, 60_000);
  assert.equal(other.isHeld, false);
  await lease[Symbol.asyncDispose]();
  await until(() => other.isHeld, 60_000);
});

type Cluster = { api: FakeApi; a: FakeNode; b: FakeNode; projects: ClusterProjects; lease: Lease };

async function cluster(t: TestContext, poolFor: KeeperParts["poolFor"] = () => 0): Promise<Cluster> {
  const api = await FakeApi.start(t);
  for (const name of ["forkd-projects", "forkd-tokens", "forkd-templates", "forkd-logins"]) api.put(name);
  api.put("forkd-gateway", {}, LEASES);
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const client = await api.client(t);
  const stack = new AsyncDisposableStack();
  t.after(async () => stack.disposeAsync());
  const secret = (name: string): RecordSecret => {
    const cache = client.cache<SecretObject>(client.path("v1", "secrets"), { fields: `metadata.name=${name}` });
    return new RecordSecret(client, name, stack.use(cache));
  };
  const objects = stack.use(client.cache<WarmSnapshot>(client.path(GROUP, RESOURCE)));
  const tags = new TagObjects(client, objects);
  const [records, tokens] = [secret("forkd-projects"), secret("forkd-tokens")];
  const [templates, logins] = [secret("forkd-templates"), secret("forkd-logins")];
  const state = new KubernetesState({ projects: records, tokens, templates, logins, tags });
  const projects = new ClusterProjects(state);
  const log = { info: () => undefined, warn: () => undefined };
  const signer = new Signer([createSecretKey(Buffer.from(KEY))], { tokens: new ClusterTokens(state), uses: new Uses() });
  const addresses = [
    { url: a.url, machine: "ma" },
    { url: b.url, machine: "mb" },
  ];
  const nodes = stack.use(new Nodes(addresses, { signer, projects, log }));
  await nodes.start();
  await until(() => api.watching === 5);
  const lease = stack.use(new Lease(client, "forkd-gateway", "one"));
  stack.use(new WarmKeeper({ api: client, objects, lease, nodes, transfers: new Transfers(nodes, log), projects, poolFor, log }));
  return { api, a, b, projects, lease };
}

function statusOf(api: FakeApi): WarmStatus {
  return api.get("app", WARM)?.status ?? {};
}
