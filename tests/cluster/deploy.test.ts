// The manifests of deploy/kubernetes and the commands of docs/kubernetes.md, with a real API server.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { findAccess } from "@forkd/gateway/kubernetes/access";
import { KubernetesApi } from "@forkd/gateway/kubernetes/api";
import { nodesIn } from "@forkd/gateway/kubernetes/slices";
import { TestKubernetes } from "../helpers/kubernetes.ts";
import { ACCOUNT, KUBECTL_POLL_MS, runPod } from "../helpers/kubernetes-nodes.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { EndpointSlice } from "@forkd/gateway/kubernetes/slices";
import type { AnyObject, Autoscaler, DaemonSet, Pod, Role, Secret } from "../helpers/kubernetes-objects.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
const MACHINES = ["machine-a", "machine-b"];
const NODE = "system:serviceaccount:forkd:forkd-node";

const missing = await TestKubernetes.missing();

describe("deploy/kubernetes", { skip: missing }, () => {
  let cluster: TestKubernetes;
  let folder: string;
  let api: KubernetesApi;

  before(async () => {
    cluster = await TestKubernetes.start();
    folder = await mkdtemp(join(tmpdir(), "forkd-test-deploy-"));
    api = new KubernetesApi(await findAccess({ KUBECONFIG: cluster.kubeconfig }));
    for (const name of [...MACHINES, "without-label"]) await cluster.addMachine(name);
  });

  after(async () => {
    api?.[Symbol.dispose]();
    await cluster?.[Symbol.asyncDispose]();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  it("is applied by the commands of docs/kubernetes.md, in their order", async () => {
    const blocks = [...(await readFile(join(ROOT, "docs", "kubernetes.md"), "utf8")).matchAll(/^```sh\n([\s\S]*?)^```$/gm)];
    assert.ok(blocks.length > 3);
    // kustomize refuses links that lead out of its folder
    await cp(join(ROOT, "deploy"), join(folder, "deploy"), { recursive: true });
    await writeFile(join(folder, "kubectl"), `#!/bin/sh\nexec '${cluster.binary}' kubectl "$@"\n`);
    await chmod(join(folder, "kubectl"), 0o755);
    for (const [, script = ""] of blocks) {
      const { code, output } = await shell(script);
      assert.equal(code, 0, `${script}\n${output}`);
    }
  });

  it("leaves what gateways wrote as it is when it is applied again", async () => {
    const data = { entry: Buffer.from("{}").toString("base64") };
    await cluster.kubectl(["-n", "forkd", "patch", "secret", "forkd-tokens", "--type=merge", "-p", JSON.stringify({ data })]);
    const before = await objects();
    await cluster.kubectl(["apply", "--server-side", "-k", folder]);
    assert.deepEqual(await objects(), before);
    assert.deepEqual((await cluster.json<Secret>(["-n", "forkd", "get", "secret", "forkd-tokens"])).data, data);
  });

  it("puts one daemon on each labelled machine, and two gateways anywhere", async () => {
    await until(async () => (await pods("node")).length === MACHINES.length && (await pods("gateway")).length === 2, KUBECTL_POLL_MS);
    const { status } = await cluster.json<DaemonSet>(["-n", "forkd", "get", "daemonset", "forkd-node"]);
    assert.equal(status?.desiredNumberScheduled, MACHINES.length);
    const hpa = await cluster.json<Autoscaler>(["-n", "forkd", "get", "hpa", "forkd-gateway"]);
    assert.equal(hpa.spec?.minReplicas, 2);
  });

  it("needs no privilege but the folder of the machine", async () => {
    await cluster.kubectl(["create", "namespace", "strict"]);
    await cluster.kubectl(["label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"]);
    // made by the controller-manager; without it pods are refused for another reason
    await until(async () => (await cluster.tryKubectl(["-n", "strict", "get", "serviceaccount", "default"])).code === 0, KUBECTL_POLL_MS);
    for (const [component, allowed] of [
      ["node", /restricted volume types \(volume "home" uses restricted volume type "hostPath"\)$/],
      ["gateway", null],
    ] as const) {
      const [pod] = await pods(component);
      assert.ok(pod);
      const { code, stderr } = await cluster.tryKubectl(["-n", "strict", "create", "--dry-run=server", "-f", "-"], {
        stdin: JSON.stringify(asNew(pod)),
      });
      if (allowed === null) assert.equal(code, 0, stderr);
      else assert.match(stderr.trim().replace(/^.*"restricted:latest": /, ""), allowed);
    }
  });

  it("names the daemons by EndpointSlices, also one that is not ready", async () => {
    const found = await pods("node");
    for (const [at, pod] of found.entries()) await runPod(cluster, pod, `10.77.0.${at + 1}`, at === 0);
    await until(async () => nodesIn(await slices()).length === MACHINES.length, KUBECTL_POLL_MS);
    assert.deepEqual(
      nodesIn(await slices()).map(({ url }) => url),
      ["https://10.77.0.1:8889", "https://10.77.0.2:8889"],
    );
    assert.deepEqual(
      nodesIn(await slices())
        .map(({ machine }) => machine)
        .sort(),
      MACHINES,
    );
  });

  it("gives the gateway what its role says and nothing else, and the daemons nothing", async () => {
    const { rules = [] } = await cluster.json<Role>(["-n", "forkd", "get", "role", "forkd-gateway"]);
    const allowed = new Set<string>();
    for (const { apiGroups = [], resources = [], verbs, resourceNames } of rules ?? [])
      for (const resource of resources)
        for (const verb of verbs) {
          allowed.add(`${verb} ${resource}`);
          const name = resourceNames?.[0];
          const what = `${resource}${apiGroups[0] ? `.${apiGroups[0]}` : ""}`;
          assert.ok(await mayDo(ACCOUNT, verb, what, "forkd", name), `${verb} ${what}`);
          assert.ok(!(await mayDo(ACCOUNT, verb, what, "default", name)), `${verb} ${what} in another namespace`);
          assert.ok(!(await mayDo(NODE, verb, what, "forkd", name)), `${verb} ${what} for a daemon`);
          if (name !== undefined) assert.ok(!(await mayDo(ACCOUNT, verb, what, "forkd", "other")), `${verb} ${what}/other`);
        }
    for (const resource of [
      "pods",
      "nodes",
      "services",
      "configmaps",
      "deployments.apps",
      "serviceaccounts",
      "roles.rbac.authorization.k8s.io",
    ])
      for (const verb of ["get", "list", "create", "update", "patch", "delete"])
        assert.ok(!(await mayDo(ACCOUNT, verb, resource, "forkd")), `${verb} ${resource}`);
    for (const verb of ["create", "patch", "deletecollection"])
      if (!allowed.has(`${verb} secrets`)) assert.ok(!(await mayDo(ACCOUNT, verb, "secrets", "forkd")), `${verb} secrets`);
  });

  it("refuses a WarmSnapshot that means nothing, with the reason", async () => {
    const good = { project: "default", tag: "python", source: "oci://registry.example/python:1", replicas: 2, pool: 1 };
    for (const [change, reason] of [
      [{ source: "python" }, /spec\.source/],
      [{ tag: "../x" }, /spec\.tag/],
      [{ replicas: -1 }, /spec\.replicas/],
      [{ pool: 1000 }, /spec\.pool/],
      [{ project: "a b" }, /spec\.project/],
      [{ tag: undefined }, /spec\.tag/],
    ] as const) {
      const { code, stderr } = await cluster.tryKubectl(["-n", "forkd", "create", "-f", "-"], {
        stdin: warm("bad", { ...good, ...change }),
      });
      assert.notEqual(code, 0, JSON.stringify(change));
      assert.match(stderr, reason);
    }
    await cluster.kubectl(["-n", "forkd", "create", "-f", "-"], { stdin: warm("good", good) });
    const renamed = await cluster.tryKubectl(["-n", "forkd", "replace", "-f", "-"], { stdin: warm("good", { ...good, tag: "other" }) });
    assert.match(renamed.stderr, /a tag cannot be renamed/);
    await cluster.kubectl(["-n", "forkd", "delete", "warmsnapshot", "good"]);
  });

  it("has monitoring and KVM as components", async () => {
    await writeFile(
      join(folder, "kustomization.yaml"),
      "resources: [deploy/kubernetes/cluster]\ncomponents: [deploy/kubernetes/kvm, deploy/kubernetes/monitoring]\n",
    );
    const all = parseAllDocuments(await cluster.kubectl(["kustomize", folder])).map((document) => document.toJS() as Applied);
    const daemons = all.find(({ kind }) => kind === "DaemonSet") as DaemonSet | undefined;
    assert.equal(daemons?.spec?.template.spec?.containers[0]?.resources?.limits?.["devices.kubevirt.io/kvm"], "1");
    // the API server has no CRD of the Prometheus operator
    assert.ok(all.some(({ kind, apiVersion }) => kind === "ServiceMonitor" && apiVersion === "monitoring.coreos.com/v1"));
    const others = { apiVersion: "v1", kind: "List", items: all.filter(({ kind }) => kind !== "ServiceMonitor") };
    await cluster.kubectl(["apply", "--server-side", "--dry-run=server", "-f", "-"], { stdin: JSON.stringify(others) });
  });

  type Applied = { apiVersion: string; kind: string };

  /** Generation of everything that has one: it changes with the spec */
  async function objects(): Promise<[string, number | undefined][]> {
    const { items } = await cluster.json<{ items: AnyObject[] }>(["-n", "forkd", "get", "daemonset,networkpolicy,hpa,pdb,role,service"]);
    return items.map(({ kind, metadata }) => [`${kind} ${metadata?.name}`, metadata?.generation]);
  }

  async function pods(component: string): Promise<Pod[]> {
    const { items } = await cluster.json<{ items: Pod[] }>([
      "-n",
      "forkd",
      "get",
      "pods",
      "-l",
      `app.kubernetes.io/component=${component}`,
    ]);
    return items;
  }

  async function slices(): Promise<EndpointSlice[]> {
    const label = "kubernetes.io/service-name=forkd-nodes";
    return (await cluster.json<{ items: EndpointSlice[] }>(["-n", "forkd", "get", "endpointslices", "-l", label])).items;
  }

  /** @param what resource, with its group behind a dot if it has one, and with its subresource behind a slash */
  async function mayDo(user: string, verb: string, what: string, namespace: string, name?: string): Promise<boolean> {
    const [full = "", ...group] = what.split(".");
    const [resource, subresource] = full.split("/");
    const asked = { verb, group: group.join("."), resource, subresource, namespace, name };
    const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    const body = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec: { user, resourceAttributes: asked } };
    const answer = await api.request<{ status: { allowed: boolean } }>("POST", path, body);
    assert.ok(answer.status === "ok");
    return answer.body.status.allowed;
  }

  async function shell(script: string): Promise<{ code: number; output: string }> {
    const env = { PATH: `${folder}:${process.env["PATH"]}`, HOME: folder, KUBECONFIG: cluster.kubeconfig };
    return new Promise((done) => {
      execFile("bash", ["-euo", "pipefail", "-c", script], { cwd: folder, env, timeout: patience() }, (error, stdout, stderr) => {
        done({ code: error ? Number(error.code ?? 1) : 0, output: `${stdout}${stderr}` });
      });
    });
  }
});

function warm(name: string, spec: object): string {
  return JSON.stringify({ apiVersion: "forkd.dev/v1alpha1", kind: "WarmSnapshot", metadata: { name }, spec });
}

/** A pod as its controller would make it in another namespace */
function asNew({ spec }: Pod): object {
  const { nodeName: _node, serviceAccountName: _account, serviceAccount: _old, ...rest } = spec ?? { containers: [] };
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "like-it" }, spec: rest };
}
