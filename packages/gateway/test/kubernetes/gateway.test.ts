// A whole gateway with --kubernetes: an API server and daemons with TLS, but without Kubernetes and VMs.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { createLog } from "@forkd/daemon/observe/log";
import { startGateway, type Gateway } from "../../src/gateway.ts";
import { gatewayOptions } from "../../src/options.ts";
import { FakeApi } from "../helpers/fake-api.ts";
import { FakeNode, KEY } from "../helpers/fake-node.ts";
import { ADMIN, until } from "../helpers/gateway.ts";

const SLICES = "/apis/discovery.k8s.io/v1/namespaces/forkd/endpointslices";
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/forkd/leases";
type Answer = { status: number; body: unknown };

test("daemons join and move by EndpointSlices, and two gateways know each other's projects and tokens", async (t) => {
  const { api, gateway } = await prepare(t);
  const [a, b] = [await FakeNode.start(t, "aaaa", api.tls), await FakeNode.start(t, "bbbb", api.tls)];
  list(api, "s1", a, "ma");
  const [one, two] = [await gateway(), await gateway()];
  assert.deepEqual(await up(one), [a.url]);
  list(api, "s2", b, "mb");
  await until(async () => (await up(one)).length === 2 && (await up(two)).length === 2, 60_000);
  // the daemon of machine a gets another address
  const moved = await FakeNode.start(t, "aaaa", api.tls);
  await a.close();
  list(api, "s1", moved, "ma");
  await until(async () => (await up(one)).join() === [moved.url, b.url].sort().join(), 60_000);

  assert.equal((await ask(one, "POST", "/v1/projects", { name: "ann", sandboxes: 3 })).status, 201);
  await until(async () => ((await ask(two, "GET", "/v1/projects")).body as { name: string }[]).some(({ name }) => name === "ann"), 60_000);
  await until(() => [moved, b].every((node) => node.projects.has("ann")), 60_000);
  const made = await ask(two, "POST", "/v1/tokens", { name: "worker", scope: "read", project: "ann" });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const { token } = made.body as { token: string };
  await until(async () => (await ask(one, "GET", "/v1/quota", undefined, token)).status === 200, 60_000);
});

test("without the API server requests are served and changes are refused", async (t) => {
  const { api, gateway } = await prepare(t);
  const node = await FakeNode.start(t, "aaaa", api.tls);
  list(api, "s1", node, "ma");
  const one = await gateway();
  await api.down();
  const refused = await ask(one, "POST", "/v1/projects", { name: "ann" });
  assert.equal((refused.body as { code: string }).code, "CLUSTER_STATE_UNAVAILABLE");
  assert.deepEqual(await up(one), [node.url]);
  await api.up();
  await until(async () => (await ask(one, "POST", "/v1/projects", { name: "ann" })).status === 201, 60_000);
});

test("the daemon of a machine that is cordoned takes no forks and is drained, until the machine is uncordoned", async (t) => {
  const { api, gateway } = await prepare(t);
  const [a, b] = [await FakeNode.start(t, "aaaa", api.tls), await FakeNode.start(t, "bbbb", api.tls)];
  list(api, "s1", a, "ma");
  list(api, "s2", b, "mb");
  for (const name of ["ma", "mb"]) api.put(name, {}, "/api/v1/nodes");
  const sandboxes = [{ id: "sb-aaaa222222222222", name: null, snapshot_id: "sn-1", memory_mib: 128, state: "suspended" }];
  a.routes.set("GET /v1/sandboxes", () => ({ body: sandboxes }));
  a.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  const steps: string[] = [];
  const refused = { status: 503, body: { error: "It stays.", code: "LIMIT_REACHED", hint: "", request_id: "r" } };
  a.routes.set("POST /v1/cluster/moves", ({ body }) => {
    const { step } = JSON.parse(body) as { step: string };
    steps.push(step);
    return step === "claim" ? { body: { is_yours: true } } : refused;
  });
  const [one, other] = [await gateway({ drainMachines: true }), await gateway()];
  const cordons = async (from: Gateway): Promise<string[]> => {
    const { nodes } = (await ask(from, "GET", "/v1/cluster")).body as { nodes: { code: string; cordoned: boolean }[] };
    return nodes.flatMap(({ code, cordoned }) => (cordoned ? [code] : []));
  };
  assert.deepEqual(await cordons(one), []);
  assert.equal(steps.length, 0);
  api.put("ma", { spec: { unschedulable: true } }, "/api/v1/nodes");
  await until(async () => (await cordons(one)).join() === "aaaa", 60_000);
  await until(() => steps.includes("depart"), 60_000);
  assert.deepEqual(await cordons(other), [], "only gateways that may read machines follow them");
  api.put("ma", {}, "/api/v1/nodes");
  await until(async () => (await cordons(one)).length === 0, 60_000);
});

type Prepared = { api: FakeApi; gateway: (more?: { drainMachines: boolean }) => Promise<Gateway> };

async function prepare(t: TestContext): Promise<Prepared> {
  const api = await FakeApi.start(t);
  for (const name of ["forkd-projects", "forkd-tokens", "forkd-templates", "forkd-logins"]) api.put(name);
  api.put("forkd-gateway", {}, LEASES);
  const authorities = getCACertificates("default");
  setDefaultCACertificates([...authorities, api.tls.cert.toString()]);
  const before = process.env["KUBECONFIG"];
  process.env["KUBECONFIG"] = await api.kubeconfig();
  const dir = await mkdtemp(join(tmpdir(), "forkd-gateway-"));
  t.after(async () => {
    setDefaultCACertificates(authorities);
    if (before === undefined) delete process.env["KUBECONFIG"];
    else process.env["KUBECONFIG"] = before;
    await rm(dir, { recursive: true, force: true });
  });
  await writeFile(join(dir, "key"), KEY, { mode: 0o600 });
  await writeFile(join(dir, "token"), ADMIN, { mode: 0o600 });
  const files = { clusterKeyFile: join(dir, "key"), tokenFile: join(dir, "token") };
  const gateway = async (more: object = {}): Promise<Gateway> => {
    const options = gatewayOptions({ kubernetes: "forkd-nodes", bind: "127.0.0.1:0", drainSecs: 0, ...files, ...more });
    const started = await startGateway(options, { log: createLog("silent") });
    t.after(async () => started.stop());
    return started;
  };
  return { api, gateway };
}

function list(api: FakeApi, name: string, node: FakeNode, machine: string): void {
  const endpoints = [{ addresses: ["127.0.0.1"], nodeName: machine }];
  api.put(name, { addressType: "IPv4", endpoints, ports: [{ name: "https", port: node.port }] }, SLICES);
}

async function up(gateway: Gateway): Promise<string[]> {
  const { nodes } = (await ask(gateway, "GET", "/v1/cluster")).body as { nodes: { url: string; state: string }[] };
  return nodes.flatMap(({ url, state }) => (state === "up" ? [url] : [])).sort();
}

async function ask(gateway: Gateway, method: string, path: string, body?: object, token = ADMIN): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(`http://${gateway.bind}${path}`, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) });
  return { status: answer.status, body: await answer.json() };
}
