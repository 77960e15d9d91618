// Where the API server is and how a gateway logs in to it.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { findAccess } from "../../src/kubernetes/access.ts";
import { KubernetesApi } from "../../src/kubernetes/api.ts";
import { FakeApi, TOKEN } from "../helpers/fake-api.ts";

const DATA = Buffer.from("pem").toString("base64");

test("the current context of a kubeconfig names the server, the namespace and the login", async (t) => {
  const path = await file(t, {
    "current-context": "second",
    contexts: [
      { name: "first", context: { cluster: "none" } },
      { name: "second", context: { cluster: "c", user: "u", namespace: "forkd" } },
    ],
    clusters: [
      {
        name: "c",
        cluster: { server: "https://10.0.0.1:6443/", "certificate-authority-data": DATA, "tls-server-name": "api.example" },
      },
    ],
    users: [{ name: "u", user: { "client-certificate-data": DATA, "client-key-data": DATA } }],
  });
  const pem = Buffer.from("pem");
  assert.deepEqual(await findAccess({ KUBECONFIG: path }), {
    server: "https://10.0.0.1:6443",
    namespace: "forkd",
    tls: { ca: pem, cert: pem, key: pem, servername: "api.example" },
    token: null,
  });
});

test("a kubeconfig without what it names, or with a login by a program, is refused with the reason", async (t) => {
  const clusters = [{ name: "c", cluster: { server: "https://10.0.0.1" } }];
  const contexts = [{ name: "x", context: { cluster: "c", user: "u" } }];
  for (const [config, reason] of [
    [{}, /no context ""/],
    [{ "current-context": "x", contexts: null, clusters }, /no context "x"/],
    [{ "current-context": "x", contexts, clusters: [] }, /no cluster "c"/],
    [{ "current-context": "x", contexts, clusters: [{ name: "c", cluster: { server: "http://10.0.0.1" } }] }, /not an address with https/],
    [{ "current-context": "x", contexts, clusters, users: [{ name: "u", user: { exec: { command: "login" } } }] }, /logs in by exec/],
    [{ "current-context": "x", contexts, clusters, users: [{ name: "u", user: { "client-key": "absent" } }] }, /absent/],
    ["a: [", /cannot be used/],
  ] as const)
    await assert.rejects(findAccess({ KUBECONFIG: await file(t, config) }), (error: Error & { code?: string }) => {
      assert.equal(error.code, "BAD_CONFIG");
      assert.match(error.message, reason);
      return true;
    });
});

test("without a kubeconfig and outside of a pod there is no cluster", async () => {
  await assert.rejects(findAccess({ KUBECONFIG: "/nonexistent/config", KUBERNETES_SERVICE_HOST: "10.0.0.1" }), { code: "BAD_CONFIG" });
});

test("a token in a file is read again when it is refused", async (t) => {
  const api = await FakeApi.start(t);
  const path = await api.kubeconfig({ tokenFile: "token" });
  const token = path.replace(/config$/, "token");
  await writeFile(token, `${TOKEN}\n`);
  using client = new KubernetesApi(await findAccess({ KUBECONFIG: path }));
  api.put("a");
  const ask = async (): Promise<string> => (await client.request("GET", `${client.path("v1", "secrets")}/a`)).status;
  assert.equal(await ask(), "ok");
  api.token = "the-next-token";
  await writeFile(token, api.token);
  assert.equal(await ask(), "ok");
  api.token = "one-that-is-nowhere";
  await assert.rejects(ask(), { code: "CLUSTER_STATE_UNAVAILABLE" });
});

async function file(t: TestContext, config: object | string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "forkd-kubeconfig-"));
  t.after(async () => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "config"), typeof config === "string" ? config : JSON.stringify(config));
  return join(folder, "config");
}
