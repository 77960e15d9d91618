// The state in Kubernetes' API: two gateways write it at once, and read what the other wrote.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { RecordSecret, type SecretObject } from "../../src/kubernetes/record-secret.ts";
import { KubernetesState } from "../../src/kubernetes/state.ts";
import { TagObjects } from "../../src/kubernetes/tag-objects.ts";
import { GROUP, RESOURCE, type WarmSnapshot } from "../../src/kubernetes/warm-snapshot.ts";
import { ClusterProjects } from "../../src/state/projects.ts";
import { Conflict, tagKey } from "../../src/state/state.ts";
import { ClusterTokens } from "../../src/state/tokens.ts";
import { FakeApi } from "../helpers/fake-api.ts";
import { until } from "../helpers/gateway.ts";

const KEY = tagKey("default", "x");

test("of two gateways that make one tag, one gets a conflict and then sees the other's value", async (t) => {
  const { one, two } = await twoOf(t);
  const made = await Promise.allSettled([one, two].map(async (state, at) => state.put("tags", KEY, { tag: "x", node: `${at}aaa` }, null)));
  const failed = made.filter((result) => result.status === "rejected");
  assert.equal(failed.length, 1);
  assert.ok(failed[0]?.reason instanceof Conflict);
  // at once: the loser may try again with what it reads now
  assert.deepEqual(one.get("tags", KEY), two.get("tags", KEY));
});

test("a tag keeps its version while only the status of its object changes", async (t) => {
  const { api, one } = await twoOf(t);
  await one.put("tags", KEY, { tag: "x", node: "aaaa", at_ms: 7 }, null);
  const before = one.get("tags", KEY);
  assert.deepEqual(before?.value, { tag: "x", node: "aaaa", at_ms: 7 });
  const list = "/apis/forkd.dev/v1alpha1/namespaces/forkd/warmsnapshots";
  const [name = ""] = api.names(list);
  const object = api.get(name, list);
  assert.ok(object);
  api.put(name, { ...object, status: { ready: 1 } }, list);
  api.put("other", { spec: { project: "default", tag: "y", source: "oci://r/y" } }, list);
  await until(() => one.get("tags", tagKey("default", "y")) !== undefined);
  assert.equal(one.get("tags", KEY), before);
  // and is changed in spite of it
  await one.put("tags", KEY, { tag: "x", node: "bbbb" }, before?.version ?? null);
  assert.equal(one.get("tags", KEY)?.value["node"], "bbbb");
  await assert.rejects(one.put("tags", KEY, { tag: "x", node: "cccc" }, before?.version ?? null), Conflict);
  // a tag of which people said where it comes from is not taken by a client's snapshot
  const given = one.get("tags", tagKey("default", "y"));
  await assert.rejects(one.put("tags", tagKey("default", "y"), { tag: "y", node: "aaaa" }, given?.version ?? null), Conflict);
});

test("projects with their quotas are one meaning for all gateways, and their removal too", async (t) => {
  const { one, two } = await twoOf(t);
  const [first, second] = [new ClusterProjects(one), new ClusterProjects(two)];
  const made = await Promise.allSettled([first, second].map(async (all) => all.create({ name: "ann", sandboxes: 3 })));
  assert.equal(made.filter(({ status }) => status === "fulfilled").length, 1);
  const refused = made.find((result) => result.status === "rejected");
  assert.equal((refused?.reason as { code?: string } | undefined)?.code, "EXISTS");
  assert.deepEqual(first.get("ann"), second.get("ann"));
  const changes = [{ vcpus: 4 }, { memory_mib: 5 }, { suspended: 6 }, { snapshots: 7 }];
  await Promise.all(changes.map(async (change, at) => (at % 2 ? first : second).update("ann", change)));
  await until(() => [first, second].every((all) => Object.values(all.quotaOf("ann")).filter((limit) => limit !== null).length === 5));
  await second.update("ann", { vcpus: 8 });
  await until(() => first.quotaOf("ann").vcpus === 8);
  assert.equal(first.quotaOf("ann").sandboxes, 3);
  await first.update("default", { sandboxes: 9 });
  await until(() => second.quotaOf("default").sandboxes === 9);
  await first.remove("ann");
  await until(() => second.removed.includes("ann"));
  assert.throws(() => second.get("ann"), { code: "NOT_FOUND" });
});

test("many writes of both gateways at once all arrive", async (t) => {
  const { one, two } = await twoOf(t);
  const [first, second] = [new ClusterProjects(one), new ClusterProjects(two)];
  const names = Array.from({ length: 12 }, (_, at) => `p${at}`);
  await Promise.all(names.map(async (name, at) => (at % 2 ? first : second).create({ name })));
  await until(() => [first, second].every((all) => all.stored.length === names.length));
});

test("of a token only its hash is stored, and the other gateway knows it and its end", async (t) => {
  const { api, one, two } = await twoOf(t);
  const [first, second] = [new ClusterTokens(one), new ClusterTokens(two)];
  const { token } = await first.create({ name: "bob", scope: "exec", project: "ann", max_sandboxes: null, expires_in_secs: null });
  await until(() => second.knows(token));
  assert.equal(second.find(token)?.name, "ann/bob");
  const stored = Object.values((api.get("forkd-tokens") as SecretObject | undefined)?.data ?? {}).map((data) =>
    Buffer.from(data, "base64").toString(),
  );
  assert.equal(stored.length, 1);
  assert.ok(!stored.join().includes(token));
  await second.revoke(second.get("bob", "ann"));
  await until(() => !first.knows(token));
  assert.deepEqual(
    first.revoked.map(({ name }) => name),
    ["ann/bob"],
  );
});

test("without the API server writes are refused, and reads continue", async (t) => {
  const { api, one } = await twoOf(t);
  const projects = new ClusterProjects(one);
  await projects.create({ name: "ann" });
  await api.down();
  await assert.rejects(projects.create({ name: "bob" }), { code: "CLUSTER_STATE_UNAVAILABLE" });
  await assert.rejects(one.put("tags", KEY, { tag: "x", node: "aaaa" }, null), { code: "CLUSTER_STATE_UNAVAILABLE" });
  assert.equal(projects.get("ann").name, "ann");
  await api.up();
  await until(async () =>
    projects.create({ name: "bob" }).then(
      () => true,
      () => false,
    ),
  );
});

test("a Secret without the records of gateways is empty, and one that is absent is named", async (t) => {
  const { api, one } = await twoOf(t);
  const projects = new ClusterProjects(one);
  api.put("forkd-projects", { data: { mine: Buffer.from("{").toString("base64"), other: Buffer.from('{"a":1}').toString("base64") } });
  await projects.create({ name: "ann" });
  assert.deepEqual(
    projects.stored.map(({ name }) => name),
    ["ann"],
  );
  api.remove("forkd-projects");
  await assert.rejects(projects.create({ name: "bob" }), /no Secret forkd-projects/);
});

type Two = { api: FakeApi; one: KubernetesState; two: KubernetesState };

async function twoOf(t: TestContext): Promise<Two> {
  const api = await FakeApi.start(t);
  for (const name of ["forkd-projects", "forkd-tokens", "forkd-templates", "forkd-logins"]) api.put(name);
  const open = async (): Promise<KubernetesState> => {
    const client = await api.client(t);
    const stack = new AsyncDisposableStack();
    t.after(async () => stack.disposeAsync());
    const secret = (name: string): RecordSecret => {
      const cache = client.cache<SecretObject>(client.path("v1", "secrets"), { fields: `metadata.name=${name}` });
      return new RecordSecret(client, name, stack.use(cache));
    };
    const tags = new TagObjects(client, stack.use(client.cache<WarmSnapshot>(client.path(GROUP, RESOURCE))));
    return new KubernetesState({
      projects: secret("forkd-projects"),
      tokens: secret("forkd-tokens"),
      templates: secret("forkd-templates"),
      logins: secret("forkd-logins"),
      tags,
    });
  };
  const [one, two] = [await open(), await open()];
  await until(() => api.watching === 10);
  return { api, one, two };
}
