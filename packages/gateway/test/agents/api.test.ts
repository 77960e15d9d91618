// The agent-sandbox API over HTTPS, as the API server of Kubernetes asks it, with a fake node behind.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { describe, it, type TestContext } from "node:test";
import { FakeNode, problem, snapshot } from "../helpers/fake-node.ts";
import { keepSandboxes, serveAgentsApi, type AgentsFixture, type FakeSandbox, type Reply } from "../helpers/agents.ts";
import { until } from "../helpers/gateway.ts";
import type { IncomingMessage } from "node:http";

const CORE = "/apis/agents.x-k8s.io/v1beta1";
const MORE = "/apis/extensions.agents.x-k8s.io/v1beta1";
const SANDBOXES = `${CORE}/namespaces/default/sandboxes`;
const CLAIMS = `${MORE}/namespaces/default/sandboxclaims`;
const TEMPLATES = `${MORE}/namespaces/default/sandboxtemplates`;
const POOLS = `${MORE}/namespaces/default/sandboxwarmpools`;

type Thing = {
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  spec: Record<string, unknown>;
  status: {
    conditions: { type: string; status: string; reason: string }[];
    sandbox?: { name: string };
    sandboxes?: { name: string }[];
    nodeName?: string;
  };
};
type Event = { type: string; object: Thing };
type Setup = AgentsFixture & { node: FakeNode; kept: Map<string, FakeSandbox> };

async function setUp(t: TestContext): Promise<Setup> {
  const node = await FakeNode.start(t, "aaaa");
  const kept = keepSandboxes(node);
  node.snapshots = [snapshot("python", "sn-1")];
  return { ...(await serveAgentsApi(t, [node])), node, kept };
}

function sandbox(name: string, more: object = {}, metadata: object = {}): object {
  const podTemplate = { spec: { containers: [{ name: "main", image: "python" }] } };
  return { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name, ...metadata }, spec: { podTemplate, ...more } };
}

function of(kind: string, name: string, spec: object): object {
  return { apiVersion: "extensions.agents.x-k8s.io/v1beta1", kind, metadata: { name }, spec };
}

async function makePool({ ask }: AgentsFixture, template: object = {}): Promise<void> {
  const podTemplate = {
    metadata: { labels: { from: "template" } },
    spec: { containers: [{ name: "main", image: "python", env: [{ name: "A", value: "1" }] }] },
  };
  assert.equal((await ask(TEMPLATES, { body: of("SandboxTemplate", "python", { podTemplate, ...template }) })).status, 201);
  const spec = { replicas: 3, sandboxTemplateRef: { name: "python" } };
  assert.equal((await ask(POOLS, { body: of("SandboxWarmPool", "python-pool", spec) })).status, 201);
}

function ready({ status }: Thing): string | undefined {
  return status.conditions.find(({ type }) => type === "Ready")?.status;
}

function failed(reply: Reply, code: number, reason: string): string {
  const {
    kind,
    status,
    reason: given,
    message,
    code: inBody,
  } = reply.body as { kind: string; status: string; reason: string; message: string; code: number };
  assert.deepEqual(
    { kind, status, reason: given, code: inBody, http: reply.status },
    { kind: "Status", status: "Failure", reason, code, http: code },
    message,
  );
  return message;
}

/** Events of a watch, as they come */
class Watching {
  readonly events: Event[] = [];
  readonly response: IncomingMessage;

  constructor(response: IncomingMessage) {
    this.response = response;
    response.on("error", () => undefined);
    createInterface({ input: response }).on("line", (line) => void this.events.push(JSON.parse(line) as Event));
  }

  get seen(): string[] {
    return this.events.map(({ type, object }) => `${type} ${object.metadata.name}`);
  }
}

async function watch(t: TestContext, { open }: AgentsFixture, path: string): Promise<Watching> {
  const response = await open(path);
  assert.equal(response.statusCode, 200);
  t.after(() => response.destroy());
  return new Watching(response);
}

describe("agent-sandbox API", () => {
  it("believes only the certificate of the aggregation layer", async (t) => {
    const { ask, other, foreign, token, node } = await setUp(t);
    const headers = { authorization: `Bearer ${token}` };
    for (const as of [null, other, foreign])
      for (const path of [SANDBOXES, "/apis", `${SANDBOXES}/a`, "/v1/sandboxes"])
        failed(await ask(path, { as, headers }), 401, "Unauthorized");
    failed(await ask(SANDBOXES, { user: null }), 401, "Unauthorized");
    failed(await ask(SANDBOXES, { as: null, body: sandbox("a") }), 401, "Unauthorized");
    assert.deepEqual(
      node.seen.filter(({ claim }) => claim.name !== "gateway"),
      [],
    );
    assert.equal((await ask(SANDBOXES)).status, 200);
  });

  it("is discovered in the three forms that clients ask for", async (t) => {
    const { ask } = await setUp(t);
    const groups = (await ask("/apis")).body as { groups: { name: string }[] };
    assert.deepEqual(
      groups.groups.map(({ name }) => name),
      ["agents.x-k8s.io", "extensions.agents.x-k8s.io"],
    );
    assert.equal(((await ask("/apis/agents.x-k8s.io")).body as { kind: string }).kind, "APIGroup");
    const { resources } = (await ask(CORE)).body as { resources: { name: string; verbs: string[] }[] };
    assert.deepEqual(
      resources.map(({ name }) => name),
      ["sandboxes", "sandboxes/branch", "sandboxes/fork", "sandboxes/resume", "sandboxes/suspend"],
    );
    assert.deepEqual(resources[0]?.verbs, ["create", "delete", "get", "list", "patch", "update", "watch"]);
    const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    const all = await ask("/apis", { headers: { accept } });
    assert.match(String(all.headers["content-type"]), /as=APIGroupDiscoveryList/);
    assert.equal((all.body as { items: unknown[] }).items.length, 2);
    failed(await ask("/apis/other/v1/things"), 404, "NotFound");
    failed(await ask(`${CORE}/namespaces/default/sandboxclaims`), 404, "NotFound");
    failed(await ask("/openapi/v2"), 404, "NotFound");
  });

  it("makes, shows, lists and ends sandboxes, which forkd keeps", async (t) => {
    const { ask, node, kept } = await setUp(t);
    const made = await ask(SANDBOXES, { body: sandbox("one", {}, { labels: { team: "red" }, annotations: { note: "é" } }) });
    assert.equal(made.status, 201);
    const forked = node.seen.find(({ method }) => method === "POST");
    assert.equal(forked?.claim.name, "kubernetes:ann");
    assert.equal(forked?.claim.project, "default");
    const body = JSON.parse(forked?.body ?? "") as Record<string, unknown>;
    assert.deepEqual({ ...body, metadata: null }, { snapshot_tag: "python", name: "one", env: {}, metadata: null });
    const one = (await ask(`${SANDBOXES}/one`)).body as Thing;
    assert.equal(ready(one), "True");
    assert.deepEqual(one.metadata.labels, { team: "red" });
    assert.equal(one.metadata.annotations?.["note"], "é");
    assert.equal(one.status.nodeName, "aaaa");
    assert.equal(one.metadata.uid, (made.body as Thing).metadata.uid);
    failed(await ask(SANDBOXES, { body: sandbox("one") }), 409, "AlreadyExists");
    await ask(SANDBOXES, { body: sandbox("two") });
    const names = async (path: string): Promise<string[]> =>
      ((await ask(path)).body as { items: Thing[] }).items.map(({ metadata }) => metadata.name);
    assert.deepEqual(await names(SANDBOXES), ["one", "two"]);
    assert.deepEqual(await names(`${CORE}/sandboxes`), ["one", "two"]);
    assert.deepEqual(await names(`${SANDBOXES}?labelSelector=team%3Dred`), ["one"]);
    assert.deepEqual(await names(`${SANDBOXES}?fieldSelector=metadata.name%3Dtwo`), ["two"]);
    failed(await ask(`${SANDBOXES}/one`, { method: "DELETE", body: { preconditions: { uid: "other" } } }), 409, "Conflict");
    const gone = await ask(`${SANDBOXES}/one`, {
      method: "DELETE",
      body: { kind: "DeleteOptions", preconditions: { uid: one.metadata.uid } },
    });
    assert.equal((gone.body as { status: string }).status, "Success");
    failed(await ask(`${SANDBOXES}/one`), 404, "NotFound");
    failed(await ask(`${SANDBOXES}/one`, { method: "DELETE" }), 404, "NotFound");
    assert.equal(kept.size, 1);
  });

  it("shows sandboxes that others made, by their ids if Kubernetes allows no such name", async (t) => {
    const { ask, kept } = await setUp(t);
    await ask(SANDBOXES, { body: sandbox("one") });
    const [info] = kept.values();
    assert.ok(info);
    Object.assign(info, { name: "Upper_Case", metadata: { theirs: "1" } });
    const { items } = (await ask(SANDBOXES)).body as { items: Thing[] };
    assert.deepEqual(
      items.map(({ metadata }) => metadata.name),
      [info.id],
    );
    assert.equal((await ask(`${SANDBOXES}/${info.id}`)).status, 200);
    failed(await ask(`${SANDBOXES}/one`), 404, "NotFound");
  });

  it("is a project for each namespace, and says when there is none", async (t) => {
    const { ask, node } = await setUp(t);
    const path = `${CORE}/namespaces/team-a/sandboxes`;
    const message = failed(await ask(path, { body: sandbox("one") }), 404, "NotFound");
    assert.match(message, /forkd project create team-a/);
    assert.deepEqual(((await ask(path)).body as { items: unknown[] }).items, []);
    await ask(SANDBOXES, { body: sandbox("one") });
    failed(await ask(`${path}/one`), 404, "NotFound");
    assert.deepEqual(
      node.seen.filter(({ method }) => method === "POST").map(({ claim }) => claim.project),
      ["default"],
    );
    failed(await ask(path, { body: sandbox("one", {}, { namespace: "default" }) }), 400, "BadRequest");
  });

  it("refuses by name what a microVM does not have, and makes nothing", async (t) => {
    const { ask, node } = await setUp(t);
    const podTemplate = {
      spec: { hostNetwork: true, containers: [{ name: "main", image: "python", securityContext: { privileged: true } }] },
    };
    const reply = await ask(SANDBOXES, { body: sandbox("one", { podTemplate, service: true, volumeClaimTemplates: [{}] }) });
    failed(reply, 422, "Invalid");
    const { details } = reply.body as { details: { causes: { field: string }[] } };
    assert.deepEqual(
      details.causes.map(({ field }) => field),
      [
        "spec.service",
        "spec.volumeClaimTemplates",
        "spec.podTemplate.spec.hostNetwork",
        "spec.podTemplate.spec.containers[0].securityContext.privileged",
      ],
    );
    for (const bad of [
      sandbox("Upper"),
      sandbox("x".repeat(65)),
      sandbox("a", {}, { labels: { "a b": "c" } }),
      sandbox("a", {}, { finalizers: ["x/y"] }),
      sandbox("a", { shutdownTime: "2001-01-01T00:00:00Z" }),
      sandbox("a", { operatingMode: "Suspended" }),
    ])
      failed(await ask(SANDBOXES, { body: bad }), 422, "Invalid");
    for (const bad of [{}, [], { ...sandbox("a"), kind: "Pod" }, { ...sandbox("a"), metadata: 1 }, "{"])
      failed(await ask(SANDBOXES, { body: bad }), 400, "BadRequest");
    failed(await ask(SANDBOXES, { body: "x", headers: { "content-type": "application/yaml" } }), 415, "UnsupportedMediaType");
    failed(await ask(SANDBOXES, { method: "DELETE" }), 405, "MethodNotAllowed");
    failed(await ask(`${SANDBOXES}?dryRun=some`, { body: sandbox("a") }), 400, "BadRequest");
    assert.equal((await ask(`${SANDBOXES}?dryRun=All`, { body: sandbox("a") })).status, 201);
    assert.deepEqual(
      node.seen.filter(({ method }) => method === "POST"),
      [],
    );
  });

  it("answers refusals of forkd with the reason that Kubernetes has for them", async (t) => {
    const { ask, node } = await setUp(t);
    const refuse = (status: number, code: string): void =>
      void node.routes.set("POST /v1/sandboxes", () => ({ status, body: problem(code, "why") }));
    refuse(404, "NOT_FOUND");
    assert.match(failed(await ask(SANDBOXES, { body: sandbox("a") }), 422, "Invalid"), /there is no snapshot "python"/);
    refuse(429, "QUOTA_EXCEEDED");
    const reply = await ask(SANDBOXES, { body: sandbox("a") });
    failed(reply, 403, "Forbidden");
    assert.deepEqual((reply.body as { details: { causes: object[] } }).details.causes, [{ reason: "QUOTA_EXCEEDED", message: "why" }]);
    refuse(503, "LIMIT_REACHED");
    failed(await ask(SANDBOXES, { body: sandbox("a") }), 503, "ServiceUnavailable");
    refuse(500, "FORK_FAILED");
    failed(await ask(SANDBOXES, { body: sandbox("a") }), 500, "InternalError");
  });

  it("changes labels, life and mode, and nothing else", async (t) => {
    const { ask, kept } = await setUp(t);
    await ask(SANDBOXES, { body: sandbox("one", {}, { labels: { a: "1" } }) });
    const patch = async (body: object, type = "merge-patch"): Promise<Reply> =>
      ask(`${SANDBOXES}/one`, { method: "PATCH", body, headers: { "content-type": `application/${type}+json` } });
    const labelled = (await patch({ metadata: { labels: { b: "2" }, annotations: { mine: "x" } } })).body as Thing;
    assert.deepEqual(labelled.metadata.labels, { a: "1", b: "2" });
    const suspended = (await patch({ spec: { operatingMode: "Suspended" } })).body as Thing;
    assert.equal(ready(suspended), "False");
    assert.deepEqual(suspended.metadata.labels, { a: "1", b: "2" });
    assert.equal([...kept.values()][0]?.state, "suspended");
    assert.equal(
      ready((await patch([{ op: "replace", path: "/spec/operatingMode", value: "Running" }], "json-patch")).body as Thing),
      "True",
    );
    await patch({ spec: { shutdownTime: new Date(Date.now() + 100_000).toISOString(), shutdownPolicy: "Delete" } });
    const { ttl_secs: ttl, on_timeout: policy } = [...kept.values()][0] as FakeSandbox;
    assert.ok(typeof ttl === "number" && ttl > 90 && ttl <= 100);
    assert.equal(policy, "end");
    assert.match(
      failed(await patch({ spec: { podTemplate: { spec: { containers: [{ name: "x", image: "node" }] } } } }), 422, "Invalid"),
      /spec.podTemplate: cannot be changed/,
    );
    failed(await patch({ metadata: { name: "two" } }), 400, "BadRequest");
    failed(await patch({ metadata: { resourceVersion: "1" } }), 409, "Conflict");
    failed(await patch({}, "apply-patch"), 415, "UnsupportedMediaType");
    const current = (await ask(`${SANDBOXES}/one`)).body as Thing;
    const put = await ask(`${SANDBOXES}/one`, {
      method: "PUT",
      body: { ...current, metadata: { ...current.metadata, labels: { only: "this" } } },
    });
    assert.deepEqual((put.body as Thing).metadata.labels, { only: "this" });
    failed(await ask(`${SANDBOXES}/one`, { method: "PUT", body: current }), 409, "Conflict");
  });

  it("has subresources for what only microVMs can do", async (t) => {
    const { ask, kept, node } = await setUp(t);
    await ask(SANDBOXES, { body: sandbox("one") });
    assert.equal(ready((await ask(`${SANDBOXES}/one/suspend`, { method: "POST" })).body as Thing), "False");
    assert.equal(ready((await ask(`${SANDBOXES}/one/resume`, { method: "POST", body: {} })).body as Thing), "True");
    const branch = await ask(`${SANDBOXES}/one/branch`, { body: { spec: { tag: "kept" } } });
    assert.equal(branch.status, 201);
    assert.equal((branch.body as Thing).kind, "SandboxBranch");
    assert.equal((branch.body as Thing).metadata.name, "kept");
    const fork = await ask(`${SANDBOXES}/one/fork`, { body: { spec: { replicas: 3, labels: { child: "yes" } } } });
    assert.equal(fork.status, 201);
    const children = (fork.body as Thing).status.sandboxes ?? [];
    assert.equal(children.length, 3);
    assert.equal(kept.size, 4);
    const { items } = (await ask(`${SANDBOXES}?labelSelector=child`)).body as { items: Thing[] };
    assert.deepEqual(
      items.map(({ metadata }) => metadata.name),
      children.map(({ name }) => name).sort(),
    );
    assert.match(
      failed(await ask(`${SANDBOXES}/one/fork`, { body: { spec: { replicas: 0, volumes: [] } } }), 422, "Invalid"),
      /spec.volumes/,
    );
    failed(await ask(`${SANDBOXES}/none/fork`, { body: {} }), 404, "NotFound");
    failed(await ask(`${SANDBOXES}/one/explode`, { body: {} }), 404, "NotFound");
    failed(await ask(`${SANDBOXES}/one/fork`), 405, "MethodNotAllowed");
    assert.ok(node.seen.every(({ claim }) => claim.name === "gateway" || claim.name === "kubernetes:ann"));
  });

  it("watches what all clients change, from the version of a list on", async (t) => {
    const setup = await setUp(t);
    const { ask, node, kept } = setup;
    await ask(SANDBOXES, { body: sandbox("one") });
    const { metadata } = (await ask(SANDBOXES)).body as Thing;
    await ask(SANDBOXES, { body: sandbox("two") });
    const from = await watch(t, setup, `${SANDBOXES}?watch=1&resourceVersion=${metadata.resourceVersion}`);
    const all = await watch(t, setup, `${CORE}/sandboxes?watch=true`);
    await until(() => all.events.length === 2);
    assert.deepEqual(all.seen, ["ADDED one", "ADDED two"]);
    assert.deepEqual(from.seen, ["ADDED two"]);
    // by another client of the cluster
    const [info] = kept.values();
    assert.ok(info);
    info.state = "paused";
    node.emit("sandbox.paused", { sandbox: info.id, project: "default" });
    await until(() => from.events.length === 2);
    assert.equal(from.seen[1], "MODIFIED one");
    assert.equal(from.events[1]?.object.status.conditions[0]?.reason, "SandboxPaused");
    kept.delete(info.id);
    node.emit("sandbox.deleted", { sandbox: info.id, project: "default" });
    await until(() => all.seen.includes("DELETED one"));
    const versions = from.events.map(({ object }) => BigInt(object.metadata.resourceVersion));
    assert.ok(versions.every((version, at) => at === 0 || version > (versions[at - 1] ?? 0n)));
    failed(await ask(`${SANDBOXES}?watch=1&resourceVersion=12`), 410, "Expired");
    failed(await ask(`${SANDBOXES}?watch=1&resourceVersion=x`), 400, "BadRequest");
  });

  it("keeps a sandbox that moves to another node: watches get its new node, and nothing ends", async (t) => {
    const [one, two] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
    const [there, later] = [keepSandboxes(one), keepSandboxes(two)];
    for (const node of [one, two]) node.snapshots = [snapshot("python", "sn-1")];
    two.maxSandboxes = 0;
    const setup = await serveAgentsApi(t, [one, two]);
    const { ask } = setup;
    await ask(SANDBOXES, { body: sandbox("one") });
    const watching = await watch(t, setup, `${SANDBOXES}?watch=1`);
    await until(() => watching.events.length === 1);
    assert.equal(watching.events[0]?.object.status.nodeName, "aaaa");
    const [info] = there.values();
    assert.ok(info);
    const { id } = info;
    const place = { sandbox: id, node: "bbbb" };
    const moved = { ...problem("SANDBOX_MOVED", "It has moved."), details: place };
    one.routes.set(`GET /v1/sandboxes/${id}`, () => ({ status: 421, headers: { "x-forkd-moved": `${id} bbbb` }, body: moved }));
    two.routes.set("POST /v1/cluster/moves", () => ({ body: {} }));
    there.delete(id);
    one.emit("sandbox.moved", { sandbox: id, project: "default" });
    later.set(id, info);
    two.emit("sandbox.moved", { sandbox: id, project: "default" });
    await until(() => watching.events.length === 2);
    assert.deepEqual(watching.seen, ["ADDED one", "MODIFIED one"]);
    assert.equal(watching.events[1]?.object.status.nodeName, "bbbb");
    // also when the lists of both are read again
    const listed = (await ask(SANDBOXES)).body as { items: Thing[] };
    assert.deepEqual(
      listed.items.map(({ metadata, status }) => `${metadata.name} ${status.nodeName}`),
      ["one bbbb"],
    );
    await one.close();
    await one.listen();
    await until(() => one.seen.filter(({ url }) => url.startsWith("/v1/sandboxes?")).length > 2);
    assert.equal((await ask(`${SANDBOXES}/one`)).status, 200);
    assert.equal(watching.events.length, 2);
  });

  it("ends a watch after its time, and begins one with a bookmark where that is asked", async (t) => {
    const setup = await setUp(t);
    await setup.ask(SANDBOXES, { body: sandbox("one") });
    const listed = await watch(
      t,
      setup,
      `${SANDBOXES}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1`,
    );
    const ended = new Promise<void>((resolve) => void listed.response.once("close", resolve));
    await until(() => listed.events.length === 2);
    assert.equal(listed.events[1]?.type, "BOOKMARK");
    assert.equal(listed.events[1]?.object.metadata.annotations?.["k8s.io/initial-events-end"], "true");
    await ended;
  });

  it("prints tables for kubectl", async (t) => {
    const setup = await setUp(t);
    await setup.ask(SANDBOXES, { body: sandbox("one") });
    const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    const table = (await setup.ask(SANDBOXES, { headers: { accept } })).body as {
      kind: string;
      columnDefinitions: unknown[];
      rows: { cells: string[]; object: Thing }[];
    };
    assert.equal(table.kind, "Table");
    assert.deepEqual(table.rows[0]?.cells.slice(0, 4), ["one", "running", "python", "aaaa"]);
    assert.equal(table.rows[0]?.cells.length, table.columnDefinitions.length);
    assert.equal(table.rows[0]?.object.kind, "PartialObjectMetadata");
    const one = (await setup.ask(`${SANDBOXES}/one`, { headers: { accept } })).body as { rows: unknown[] };
    assert.equal(one.rows.length, 1);
    const metadata = {
      accept:
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    };
    const partial = (await setup.ask(`${CORE}/sandboxes`, { headers: metadata })).body as { kind: string; items: object[] };
    assert.equal(partial.kind, "PartialObjectMetadataList");
    assert.deepEqual(Object.keys(partial.items[0] ?? {}), ["kind", "apiVersion", "metadata"]);
  });
});

describe("claims, templates and pools", () => {
  it("make a sandbox of the template, which a watch from the answer's version sees ready", async (t) => {
    const setup = await setUp(t);
    const { ask, node, kept } = setup;
    await makePool(setup);
    const spec = { warmPoolRef: { name: "python-pool" }, additionalPodMetadata: { labels: { own: "1" } } };
    const claim = (await ask(CLAIMS, { body: of("SandboxClaim", "claim-1", spec) })).body as Thing;
    const watching = await watch(
      t,
      setup,
      `${CLAIMS}?watch=True&fieldSelector=metadata.name%3Dclaim-1&resourceVersion=${claim.metadata.resourceVersion}`.replace(
        "True",
        "true",
      ),
    );
    await until(() => watching.events.length > 0);
    const [{ object }] = watching.events as [Event];
    assert.equal(object.metadata.uid, claim.metadata.uid);
    assert.equal(ready(object), "True");
    assert.deepEqual(object.status.sandbox, { name: "claim-1" });
    const made = (await ask(`${SANDBOXES}/claim-1`)).body as Thing;
    assert.deepEqual(made.metadata.labels, { from: "template", own: "1", "forkd.dev/claim": "claim-1" });
    assert.deepEqual(
      (JSON.parse(node.seen.find(({ method, url }) => method === "POST" && url === "/v1/sandboxes")?.body ?? "") as { env: object }).env,
      { A: "1" },
    );
    assert.deepEqual(
      ((await ask(CLAIMS)).body as { items: Thing[] }).items.map(({ metadata }) => metadata.name),
      ["claim-1"],
    );
    assert.equal((await ask(`${CLAIMS}/claim-1`, { method: "DELETE" })).status, 200);
    await until(() => watching.seen.includes("DELETED claim-1"));
    assert.equal(kept.size, 0);
  });

  it("are refused without pool, template or the right to set variables", async (t) => {
    const setup = await setUp(t);
    const { ask } = setup;
    const claim = (spec: object): object => of("SandboxClaim", "c", spec);
    assert.match(
      failed(await ask(CLAIMS, { body: claim({ warmPoolRef: { name: "none" } }) }), 422, "Invalid"),
      /there is no SandboxWarmPool "none"/,
    );
    await makePool(setup);
    const env = [{ name: "B", value: "2" }];
    assert.match(
      failed(await ask(CLAIMS, { body: claim({ warmPoolRef: { name: "python-pool" }, env }) }), 422, "Invalid"),
      /envVarsInjectionPolicy/,
    );
    const template = (await ask(`${TEMPLATES}/python`)).body as Thing;
    const allowed = { ...template, spec: { ...template.spec, envVarsInjectionPolicy: "Allowed" } };
    assert.equal((await ask(`${TEMPLATES}/python`, { method: "PUT", body: allowed })).status, 200);
    assert.match(
      failed(
        await ask(CLAIMS, { body: claim({ warmPoolRef: { name: "python-pool" }, env: [{ name: "A", value: "2" }] }) }),
        422,
        "Invalid",
      ),
      /does not allow to override/,
    );
    assert.equal((await ask(CLAIMS, { body: claim({ warmPoolRef: { name: "python-pool" }, env }) })).status, 201);
    failed(await ask(CLAIMS, { body: claim({ warmPoolRef: { name: "python-pool" } }) }), 409, "AlreadyExists");
    await ask(`${TEMPLATES}/python`, { method: "DELETE" });
    assert.match(
      failed(await ask(CLAIMS, { body: of("SandboxClaim", "d", { warmPoolRef: { name: "python-pool" } }) }), 422, "Invalid"),
      /SandboxTemplate "python" does not exist/,
    );
  });

  it("set how many VMMs wait for the snapshot, summed over pools", async (t) => {
    const setup = await setUp(t);
    const { ask, node } = setup;
    const pools: unknown[] = [];
    node.routes.set("PATCH /v1/snapshots/python", ({ body }) => {
      pools.push((JSON.parse(body) as { pool: unknown }).pool);
      return { body: {} };
    });
    await makePool(setup);
    await ask(POOLS, { body: of("SandboxWarmPool", "second", { replicas: 2, sandboxTemplateRef: { name: "python" } }) });
    await ask(`${POOLS}/python-pool`, {
      method: "PATCH",
      body: { spec: { replicas: 1 } },
      headers: { "content-type": "application/merge-patch+json" },
    });
    await ask(`${TEMPLATES}/python`, { method: "DELETE" });
    assert.deepEqual(pools, [3, 5, 3, 0]);
    node.routes.set("PATCH /v1/snapshots/python", () => ({ status: 404, body: problem("NOT_FOUND", "There is no snapshot python.") }));
    const warned = await ask(TEMPLATES, {
      body: of("SandboxTemplate", "python", { podTemplate: { spec: { containers: [{ name: "m", image: "python" }] } } }),
    });
    assert.equal(warned.status, 201);
    assert.match(String(warned.headers["warning"]), /299 - "the pool of snapshot python was not set: There is no snapshot python\."/);
  });

  it("are kept as they were given, and are watched", async (t) => {
    const setup = await setUp(t);
    const watching = await watch(t, setup, `${TEMPLATES}?watch=1`);
    await makePool(setup);
    await until(() => watching.events.length === 1);
    assert.deepEqual(watching.seen, ["ADDED python"]);
    const first = (await setup.ask(`${POOLS}/python-pool`)).body as Thing;
    assert.equal(first.spec["replicas"], 3);
    failed(await setup.ask(POOLS, { body: of("SandboxWarmPool", "bad", { replicas: -1 }) }), 422, "Invalid");
    failed(
      await setup.ask(TEMPLATES, { body: of("SandboxTemplate", "bad", { podTemplate: {}, networkPolicy: { egress: [] } }) }),
      422,
      "Invalid",
    );
  });
});
