import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { Metrics } from "../../src/observe/metrics.ts";
import { ABORT_SECS, readRepo, root, settingsOf, unknownVariables } from "./files.ts";

const run = promisify(execFile);
const KUBECTL_MS = 60_000;
/** Without a server kubectl only builds; tests/cluster applies the manifests to a real one */
const noKubectl = await run("kubectl", ["version", "--client"], { timeout: KUBECTL_MS }).then(
  () => false,
  () => "there is no kubectl",
);

/** For what no other machine takes */
const SUSPEND_SECS = 120;
const FOLDER = "deploy/kubernetes/cluster";
const DASHBOARD = "deploy/kubernetes/monitoring/forkd.json";

type Container = { image: string; env?: { name: string; value: string }[]; securityContext: object; resources: object };
type Source = { secret?: { optional?: boolean }; projected?: { sources: { secret: { optional?: boolean } }[] } };
type Pod = {
  enableServiceLinks: boolean;
  terminationGracePeriodSeconds: number;
  securityContext: { runAsNonRoot: boolean; runAsUser: number; seccompProfile: object };
  initContainers: Container[];
  containers: Container[];
  volumes: Source[];
};
type Resource = { kind: string; metadata: { name: string }; data?: object; spec: { template: { spec: Pod } } };

describe("kubernetes cluster, as data", () => {
  let resources: Resource[] = [];
  let pods: Pod[] = [];

  before(async () => {
    const files = (await readdir(join(root, FOLDER))).filter((name) => name !== "kustomization.yaml");
    const texts = await Promise.all(files.map(async (name) => readRepo(`${FOLDER}/${name}`)));
    resources = texts.flatMap((text) => parseAllDocuments(text).map((document) => document.toJS() as Resource));
    pods = resources.filter(({ kind }) => kind === "DaemonSet" || kind === "Deployment").map(({ spec }) => spec.template.spec);
    assert.equal(pods.length, 2);
  });

  it("has each file in its kustomization", async () => {
    const [list] = parseAllDocuments(await readRepo(`${FOLDER}/kustomization.yaml`)).map(
      (document) => document.toJS() as { resources: string[] },
    );
    const files = (await readdir(join(root, FOLDER))).filter((name) => name !== "kustomization.yaml");
    assert.deepEqual(list?.resources.toSorted(), files.sort());
  });

  it("has no secret value in it", () => {
    for (const { kind, data } of resources) if (kind === "Secret") assert.equal(data, undefined);
  });

  it("runs without root, with the usual system calls, pinned images and limits", () => {
    for (const { securityContext, initContainers, containers, enableServiceLinks } of pods) {
      assert.equal(securityContext.runAsNonRoot, true);
      assert.ok(securityContext.runAsUser > 0);
      assert.deepEqual(securityContext.seccompProfile, { type: "RuntimeDefault" });
      // the variables that Kubernetes adds for services would be read as settings
      assert.equal(enableServiceLinks, false);
      for (const { securityContext, resources, image } of [...initContainers, ...containers]) {
        const locked = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } };
        assert.deepEqual(securityContext, locked);
        assert.deepEqual(Object.keys(resources).sort(), ["limits", "requests"]);
        assert.match(image, /:\d+\.\d+\.\d+$/);
      }
    }
  });

  it("does not start without its secrets", () => {
    for (const { volumes } of pods) {
      const secrets = volumes.flatMap(({ secret, projected }) => (secret ? [secret] : (projected?.sources ?? []).map((one) => one.secret)));
      assert.ok(secrets.length > 1);
      for (const { optional } of secrets) assert.equal(optional, false);
    }
  });

  it("has settings that the daemon takes, and time to stop", async () => {
    const [pod] = resources.filter(({ kind }) => kind === "DaemonSet").map(({ spec }) => spec.template.spec);
    const env = Object.fromEntries((pod?.containers[0]?.env ?? []).map(({ name, value }) => [name, value]));
    assert.deepEqual(await unknownVariables(Object.keys(env)), []);
    const settings = await settingsOf(env);
    assert.equal(settings.insecure, false);
    assert.ok(settings.leaveSecs > 0, "the VMs end with the pod");
    assert.ok((pod?.terminationGracePeriodSeconds ?? 0) > settings.leaveSecs + SUSPEND_SECS + settings.drainSecs + ABORT_SECS);
  });

  it(
    "is built by kubectl together with KVM, monitoring, the agent-sandbox API and drains of machines, and with an image of one's own",
    { skip: noKubectl },
    async (t) => {
      const folder = await mkdtemp(join(tmpdir(), "forkd-kustomize-"));
      t.after(async () => rm(folder, { recursive: true, force: true }));
      // kustomize refuses links that lead out of its folder
      await cp(join(root, "deploy", "kubernetes"), join(folder, "kubernetes"), { recursive: true });
      const [image, tag] = ["registry.internal/forkd", "9.9.9"];
      await writeFile(
        join(folder, "kustomization.yaml"),
        `resources: [kubernetes/cluster]
components: [kubernetes/kvm, kubernetes/monitoring, kubernetes/agents, kubernetes/drain]
images: [{ name: registry.example/forkd, newName: ${image}, newTag: ${tag} }]
`,
      );
      const { stdout } = await run("kubectl", ["kustomize", folder], {
        timeout: KUBECTL_MS,
        env: { PATH: process.env["PATH"], HOME: folder },
      });
      const built = parseAllDocuments(stdout).map((document) => document.toJS() as Resource & { metadata: { namespace?: string } });
      for (const { kind, metadata } of built)
        if (!["Namespace", "CustomResourceDefinition", "APIService", "ClusterRole", "ClusterRoleBinding"].includes(kind))
          assert.equal(
            metadata.namespace,
            metadata.name === "forkd-gateway-authentication" ? "kube-system" : "forkd",
            `${kind} ${metadata.name}`,
          );
      const containers = built.flatMap(({ spec }) => [
        ...(spec?.template?.spec.initContainers ?? []),
        ...(spec?.template?.spec.containers ?? []),
      ]);
      assert.deepEqual(new Set(containers.map((container) => container.image)), new Set([`${image}:${tag}`]));
      const kvm = containers.filter(({ resources }) => JSON.stringify(resources).includes("devices.kubevirt.io/kvm"));
      assert.equal(kvm.length, 1);
      assert.ok(stdout.includes("--agents-bind=0.0.0.0:8892"));
      assert.ok(stdout.includes("- --drain-machines"));
      assert.match(stdout, /- name: agents\n +port: 8892\n +targetPort: agents/);
      assert.equal(built.filter(({ kind }) => kind === "APIService").length, 2);
      assert.ok(built.some(({ kind }) => kind === "ServiceMonitor"));
      assert.ok(built.some(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === "forkd-dashboard"));
    },
  );

  it("has a dashboard with metrics and labels that exist", async () => {
    const real = await new Metrics({ version: "0", branchConcurrency: 1 }).text();
    const names = new Set(
      [...real.matchAll(/^# TYPE (\S+) (\S+)$/gm)].flatMap(([, name, kind]) => (kind === "histogram" ? [`${name}_bucket`] : [name])),
    );
    const { panels } = JSON.parse(await readRepo(DASHBOARD)) as { panels: { id: number; targets: { expr: string }[] }[] };
    const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    assert.ok(queries.length > 10);
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    for (const query of queries) {
      const used = [...query.matchAll(/\b((?:forkd|process)_[a-z_]+)/g)].map(([, name]) => name);
      assert.ok(used.length > 0, query);
      for (const name of used) assert.ok(names.has(name), `${name} in ${query}`);
      // Each gateway is scraped and answers for all nodes: a sum without this counts each node several times.
      assert.match(query, /max by \(node/);
    }
  });
});
