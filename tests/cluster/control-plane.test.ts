// The control plane that the other tests of this folder use: it starts, checks rights, and keeps what it acknowledged.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { cmdlineOf, processIds } from "../helpers/host.ts";
import { TestKubernetes } from "../helpers/kubernetes.ts";

const missing = await TestKubernetes.missing();

describe("control plane", { skip: missing }, () => {
  let cluster: TestKubernetes;

  before(async () => {
    cluster = await TestKubernetes.start();
  });

  after(async () => cluster[Symbol.asyncDispose]());

  it("serves the version of tests/cluster/go.mod", async () => {
    const { serverVersion } = await cluster.json<{ serverVersion: { gitVersion: string } }>(["version"]);
    assert.match(serverVersion.gitVersion, /^v1\.36\.3$/);
  });

  it("gives a service account only what a role allows", async () => {
    await cluster.kubectl(["create", "serviceaccount", "reader"]);
    const token = (await cluster.kubectl(["create", "token", "reader"])).trim();
    const refused = await cluster.tryKubectl(["get", "configmaps"], { token });
    assert.match(refused.stderr, /cannot list resource "configmaps"/);
    await cluster.kubectl(["create", "role", "reader", "--verb=list", "--resource=configmaps"]);
    await cluster.kubectl(["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"]);
    assert.match(await cluster.kubectl(["get", "configmaps"], { token }), /kube-root-ca\.crt/);
  });

  it("keeps what it acknowledged when etcd and the API server are killed", async () => {
    await cluster.kubectl(["create", "configmap", "kept", "--from-literal=word=here"]);
    await cluster.kill9("etcd");
    await cluster.kill9("kube-apiserver");
    assert.notEqual((await cluster.tryKubectl(["get", "configmap", "kept"])).code, 0);
    await cluster.up("etcd");
    await cluster.up("kube-apiserver");
    assert.equal(await cluster.kubectl(["get", "configmap", "kept", "-o", "jsonpath={.data.word}"]), "here");
  });

  it("leaves no process and no file", async () => {
    const { folder } = cluster;
    await cluster[Symbol.asyncDispose]();
    assert.ok(!existsSync(folder));
    assert.deepEqual(
      processIds().filter((pid) => cmdlineOf(pid).includes(folder)),
      [],
    );
  });
});
