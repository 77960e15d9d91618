// A cluster on Kubernetes: three daemons and two gateways that find each other and keep their state by a real API
// server, which is killed during load.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { ForkdError } from "forkd";
import { ACCOUNT, KUBECTL_POLL_MS, KubernetesNodes, NAMESPACE, type TestGateway } from "../helpers/kubernetes-nodes.ts";
import { until } from "../helpers/until.ts";

import type { Lease, Role, Secret } from "../helpers/kubernetes-objects.ts";
import type { Controller } from "forkd";
import type { WarmSnapshot } from "@forkd/gateway/kubernetes/warm-snapshot";

const NODES = 3;

const missing = await KubernetesNodes.missing();

describe("a cluster on Kubernetes", { skip: missing }, () => {
  let nodes: KubernetesNodes;
  let one: TestGateway;
  let two: TestGateway;

  before(async () => {
    // the first daemon has the snapshot `python`
    nodes = await KubernetesNodes.start(NODES);
    one = await nodes.gateway();
    two = await nodes.gateway();
  });

  after(async () => nodes?.[Symbol.asyncDispose]());

  it("has the daemons of the EndpointSlices, with the names of their machines", async () => {
    for (const { controller } of [one, two]) {
      await until(async () => (await controller.cluster()).nodes.filter(({ state }) => state === "up").length === NODES);
      const urls = (await controller.cluster()).nodes.map(({ url }) => url ?? "");
      assert.deepEqual(urls.sort(), ["https://10.77.0.1:8889", "https://10.77.0.2:8889", "https://10.77.0.3:8889"]);
    }
  });

  it("keeps tokens as hashes in a Secret, and all gateways know them at once", async () => {
    const { token } = await one.controller.createToken("worker", { scope: "exec" });
    await until(async () => works(two.as(token)));
    const { data = {} } = await nodes.cluster.json<Secret>(["-n", NAMESPACE, "get", "secret", "forkd-tokens"]);
    const stored = Object.values(data).map((text) => Buffer.from(text, "base64").toString());
    assert.equal(stored.length, 1);
    assert.match(stored[0] ?? "", /"name":"worker"/);
    assert.ok(!stored.join("").includes(token), "the token itself is stored");
    await two.controller.deleteToken("worker");
    await until(async () => !(await works(one.as(token))));
  });

  it("refuses a second token of a name, also when both gateways make it at once", async () => {
    const made = await Promise.allSettled([one, two].map(async ({ controller }) => controller.createToken("twin")));
    assert.equal(made.filter(({ status }) => status === "fulfilled").length, 1);
    const refused = made.find(({ status }) => status === "rejected") as PromiseRejectedResult;
    assert.equal((refused.reason as ForkdError).code, "EXISTS");
    await one.controller.deleteToken("twin");
  });

  it("brings a WarmSnapshot to as many machines as it says, and its status says where it is", async () => {
    const [{ code } = { code: null }] = (await one.controller.cluster()).nodes.filter(({ snapshots }) => snapshots.length > 0);
    const spec = { tag: "python", source: `node:${code}`, replicas: 2 };
    await nodes.cluster.kubectl(["-n", NAMESPACE, "create", "-f", "-"], { stdin: warm("python", spec) });
    await until(async () => (await warmStatus("python"))?.ready === 2, KUBECTL_POLL_MS);
    const { nodes: where = [], snapshot } = (await warmStatus("python")) ?? {};
    assert.deepEqual(new Set(where.map(({ state }) => state)), new Set(["Ready"]));
    const holders = (await two.controller.cluster()).nodes.filter(({ snapshots }) => snapshots.some(({ id }) => id === snapshot));
    assert.equal(holders.length, 2);
    assert.ok(where.some(({ name }) => name === "machine-0"));
    await nodes.cluster.kubectl([...patch("python"), JSON.stringify({ spec: { replicas: NODES } })]);
    await until(async () => (await warmStatus("python"))?.ready === NODES, KUBECTL_POLL_MS);
    // and back, without the copies that are too many
    await nodes.cluster.kubectl([...patch("python"), JSON.stringify({ spec: { replicas: 1, keep: false } })]);
    await until(async () => (await warmStatus("python"))?.ready === 1, KUBECTL_POLL_MS);
    await nodes.cluster.kubectl([...patch("python"), JSON.stringify({ spec: { replicas: NODES } })]);
    await until(async () => (await warmStatus("python"))?.ready === NODES, KUBECTL_POLL_MS);
  });

  it("says why a source cannot be fetched", async () => {
    const spec = { tag: "absent", source: "https://127.0.0.1:9/absent.forkd", replicas: 1 };
    await nodes.cluster.kubectl(["-n", NAMESPACE, "create", "-f", "-"], { stdin: warm("absent", spec) });
    await until(async () => (await warmStatus("absent"))?.nodes?.[0]?.state === "Failed", KUBECTL_POLL_MS);
    assert.match((await warmStatus("absent"))?.nodes?.[0]?.message ?? "", /127\.0\.0\.1:9/);
    await nodes.cluster.kubectl(["-n", NAMESPACE, "delete", "warmsnapshot", "absent"]);
  });

  it("registers a tag that a client makes as a WarmSnapshot, and again when the node no longer has it", async () => {
    const byNode = new Map<string, string>();
    await until(async () => {
      const [sandbox] = await one.controller.spawnSandboxes("python");
      if (sandbox) byNode.set(sandbox.id.slice(3, 7), sandbox.id);
      return byNode.size > 1;
    });
    const [[first, child], [second, other]] = [...byNode] as [[string, string], [string, string]];
    await one.controller.branchSandbox(child, { tag: "tagged" });
    assert.equal(await sourceOf("tagged"), `node:${first}`);
    await assert.rejects(two.controller.branchSandbox(other, { tag: "tagged" }), { code: "EXISTS" });
    const isListed = async (): Promise<boolean> =>
      (await two.controller.cluster()).nodes.some(({ snapshots }) => snapshots.some(({ tag }) => tag === "tagged"));
    await until(isListed);
    for (const { controller } of nodes.daemons) if ((await controller.status()).node === first) await controller.deleteSnapshot("tagged");
    await until(async () => !(await isListed()));
    // as if it had been registered long ago: an entry that is new may be for a snapshot that is being made
    const { items } = await nodes.cluster.json<{ items: WarmSnapshot[] }>(["-n", NAMESPACE, "get", "warmsnapshots"]);
    const name = items.find(({ spec }) => spec.tag === "tagged")?.metadata.name ?? "";
    await nodes.cluster.kubectl([...patch(name), JSON.stringify({ spec: { about: { at_ms: 1 } } })]);
    await until(async () => isMade(async () => two.controller.branchSandbox(other, { tag: "tagged" })));
    assert.equal(await sourceOf("tagged"), `node:${second}`);
    await two.controller.killSandboxes({ all: true });
    await two.controller.deleteSnapshot("tagged");
    await until(async () => (await sourceOf("tagged")) === undefined, KUBECTL_POLL_MS);
  });

  it("continues without the API server and etcd, and refuses only what needs them", async () => {
    const { token } = await one.controller.createToken("stays", { scope: "admin" });
    await until(async () => works(two.as(token)));
    const worker = two.as(token);
    const done = { forks: 0, evals: 0, branches: 0 };
    const stop = new AbortController();
    let failure: unknown = null;
    const load = Promise.all([one.controller, worker].map(async (controller) => work(controller, done, stop.signal))).catch(
      (error: unknown) => (failure = error),
    );
    try {
      await until(() => failure !== null || done.forks > 1);
      await nodes.cluster.kill9("kube-apiserver");
      await nodes.cluster.kill9("etcd");
      const before = { ...done };
      await until(
        () => failure !== null || (done.forks > before.forks + 3 && done.evals > before.evals + 3 && done.branches > before.branches),
      );
      assert.equal(failure, null);
      // the token stays valid, because its revocation was refused
      await assert.rejects(one.controller.deleteToken("stays"), { code: "CLUSTER_STATE_UNAVAILABLE" });
      await assert.rejects(two.controller.createToken("not-made"), { code: "CLUSTER_STATE_UNAVAILABLE" });
      assert.ok(await works(worker));
      await nodes.cluster.up("etcd");
      await nodes.cluster.up("kube-apiserver");
    } finally {
      stop.abort();
      await load;
    }
    assert.equal(failure, null);
    // and nothing of what was refused exists
    await until(async () => revoked(one.controller, "stays"));
    await until(async () => !(await works(worker)));
    assert.deepEqual(
      (await two.controller.listTokens()).map(({ name }) => name),
      ["token-file"],
    );
  });

  it("starts no gateway without state, and serves with those that run", async () => {
    await nodes.cluster.kill9("kube-apiserver");
    await assert.rejects(nodes.gateway({ account: one.account }), /did not start/);
    assert.ok(await works(one.controller));
    await nodes.cluster.up("kube-apiserver");
  });

  it("moves the sandboxes of a machine that kubectl drains, and its copies of snapshots count for none until it is back", async () => {
    const { nodes: all } = await one.controller.cluster();
    const code = all.find(({ url }) => url === "https://10.77.0.1:8889")?.code ?? "";
    const [first] = nodes.daemons;
    const [running, asleep] = (await first?.controller.spawnSandboxes("python", { n: 2 })) ?? [];
    assert.ok(running && asleep);
    await one.controller.evalCode(running.id, "kept = 41");
    await one.controller.suspendSandbox(asleep.id);
    await nodes.cluster.kubectl(["drain", "machine-0", "--ignore-daemonsets"]);
    await until(async () => (await first?.controller.listSandboxes())?.length === 0);
    for (const { controller } of [one, two]) {
      assert.equal((await controller.evalCode(running.id, "kept + 1")).value, 42);
      assert.equal((await controller.getSandbox(asleep.id)).state, "suspended");
    }
    const [other] = await two.controller.spawnSandboxes("python");
    assert.notEqual(other?.id.slice(3, 7), code);
    await until(async () => (await warmStatus("python"))?.ready === NODES - 1, KUBECTL_POLL_MS);
    assert.deepEqual((await warmStatus("python"))?.nodes?.[0], { name: "machine-0", state: "Ready", message: "the machine is cordoned" });
    await nodes.cluster.kubectl(["uncordon", "machine-0"]);
    await until(async () => (await warmStatus("python"))?.ready === NODES, KUBECTL_POLL_MS);
    await one.controller.killSandboxes({ all: true });
  });

  it("tells that a machine is gone, and does not take its sandboxes for unknown", async () => {
    const { nodes: all } = await one.controller.cluster();
    const code = all.find(({ url }) => url === "https://10.77.0.3:8889")?.code;
    await nodes.leave(2);
    await until(async () => (await one.controller.cluster()).nodes.filter(({ state }) => state === "down").length === 1);
    await assert.rejects(one.controller.getSandbox(`sb-${code}aaaaaaaaaaaa`), { code: "NODE_UNREACHABLE" });
    await nodes.startDaemon(2);
  });

  it("moves snapshots by another gateway when the one that did it is killed", async () => {
    const { spec } = await nodes.cluster.json<Lease>(["-n", NAMESPACE, "get", "lease", "forkd-gateway"]);
    const isOne = spec?.holderIdentity?.includes(`-${one.pid}-`) === true;
    assert.ok(isOne || spec?.holderIdentity?.includes(`-${two.pid}-`), spec?.holderIdentity);
    const [holder, other] = isOne ? [one, two] : [two, one];
    await holder.end();
    await nodes.cluster.kubectl([...patch("python"), JSON.stringify({ spec: { pool: 1, replicas: 2 } })]);
    const { generation } = (await warmSnapshot("python")).metadata;
    await until(async () => (await warmSnapshot("python")).status?.observedGeneration === generation, KUBECTL_POLL_MS);
    const prepared = async (): Promise<number> =>
      (await other.controller.cluster()).nodes.filter(({ snapshots }) => snapshots.some(({ pool }) => pool === 1)).length;
    await until(async () => (await prepared()) === 2);
  });

  it("used every right of its role, and asked for no other", async () => {
    const lines = (await readFile(nodes.cluster.path("audit.log"), "utf8")).trim().split("\n");
    const events = lines.map((line) => JSON.parse(line) as Audited).filter(({ user }) => user.username === ACCOUNT);
    const { rules = [] } = await nodes.cluster.json<Role>(["-n", NAMESPACE, "get", "role", "forkd-gateway"]);
    const { rules: wider = [] } = await nodes.cluster.json<Role>(["get", "clusterrole", "forkd-gateway-machines"]);
    const given = [...(rules ?? []), ...(wider ?? [])].flatMap(({ resources = [], verbs, resourceNames }) =>
      resources.flatMap((resource) => verbs.map((verb) => ({ right: `${verb} ${resource}`, names: resourceNames ?? null }))),
    );
    const used = new Set<string>();
    for (const { verb, objectRef } of events) {
      const { resource = "", subresource, name = "" } = objectRef ?? {};
      const right = `${verb} ${resource}${subresource === undefined ? "" : `/${subresource}`}`;
      used.add(right);
      const names = given.find((one) => one.right === right)?.names;
      if (names) assert.ok(names.includes(name), `${right} ${name}`);
    }
    assert.deepEqual([...used].sort(), given.map(({ right }) => right).sort());
  });

  type Audited = { verb: string; user: { username: string }; objectRef?: { resource: string; subresource?: string; name?: string } };

  async function warmStatus(name: string): Promise<WarmSnapshot["status"]> {
    return (await warmSnapshot(name)).status;
  }

  async function sourceOf(tag: string): Promise<string | undefined> {
    const { items } = await nodes.cluster.json<{ items: WarmSnapshot[] }>(["-n", NAMESPACE, "get", "warmsnapshots"]);
    return items.find(({ spec }) => spec.tag === tag)?.spec.source;
  }

  async function warmSnapshot(name: string): Promise<WarmSnapshot> {
    return nodes.cluster.json<WarmSnapshot>(["-n", NAMESPACE, "get", "warmsnapshot", name]);
  }
});

/** Forks, evaluates and branches until it is stopped; any failure ends the test */
async function work(controller: Controller, done: { forks: number; evals: number; branches: number }, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const [sandbox] = await controller.spawnSandboxes("python");
    assert.ok(sandbox);
    done.forks++;
    for (let at = 0; at < 3; at++) {
      assert.equal((await controller.evalCode(sandbox.id, `${at} + 1`)).value, at + 1);
      done.evals++;
    }
    await controller.branchSandbox(sandbox.id);
    done.branches++;
    await controller.killSandbox(sandbox.id);
  }
}

async function works(controller: Controller): Promise<boolean> {
  try {
    await controller.listSandboxes();
    return true;
  } catch (error) {
    if (error instanceof ForkdError && error.code === "UNAUTHORIZED") return false;
    throw error;
  }
}

/** A gateway notices within a moment that the API server is back, which may be too slow to answer at first */
async function revoked(controller: Controller, name: string): Promise<boolean> {
  try {
    await controller.deleteToken(name);
    return true;
  } catch (error) {
    if (error instanceof ForkdError && error.code === "CLUSTER_STATE_UNAVAILABLE") return false;
    // an earlier request was done without an answer
    if (error instanceof ForkdError && error.code === "NOT_FOUND") return true;
    throw error;
  }
}

/** A gateway sees a change of an object within a moment */
async function isMade(make: () => Promise<unknown>): Promise<boolean> {
  try {
    await make();
    return true;
  } catch (error) {
    if (error instanceof ForkdError && error.code === "EXISTS") return false;
    throw error;
  }
}

function patch(name: string): string[] {
  return ["-n", NAMESPACE, "patch", "warmsnapshot", name, "--type=merge", "-p"];
}

function warm(name: string, spec: object): string {
  return JSON.stringify({ apiVersion: "forkd.dev/v1alpha1", kind: "WarmSnapshot", metadata: { name }, spec });
}
