import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { promisify } from "node:util";
import { ABORT_SECS, readRepo, root, settingsOf, unknownVariables } from "./files.ts";

const FILE = "deploy/kubernetes/forkd.yaml";
const TO_JSON = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";

type Probe = { httpGet: { path: string; scheme: string } };
type Container = {
  image: string;
  env?: { name: string; value: string }[];
  securityContext: object;
  resources: object;
} & Partial<Record<"startupProbe" | "livenessProbe" | "readinessProbe", Probe>>;
type Volume = { name: string; secret?: { secretName: string; optional: boolean } };
type Pod = {
  automountServiceAccountToken: boolean;
  enableServiceLinks: boolean;
  terminationGracePeriodSeconds: number;
  securityContext: { runAsNonRoot: boolean; runAsUser: number; seccompProfile: object };
  initContainers: Container[];
  containers: Container[];
  volumes: Volume[];
};
type Resource = { kind: string; spec: Record<string, unknown> };

describe("kubernetes manifest, as text", () => {
  it("has no secret in it", async () => {
    const text = await readRepo(FILE);
    assert.doesNotMatch(text, /^kind: Secret$/m);
    assert.doesNotMatch(text, /stringData|REPLACE_ME|CHANGE_ME/);
    assert.match(text, /openssl rand -hex 32/);
  });

  it("requests no privileges", async () => {
    assert.doesNotMatch(await readRepo(FILE), /privileged: true|hostPath:|hostNetwork: true|hostPID: true|allowPrivilegeEscalation: true/);
  });

  it("pins versions of images", async () => {
    const images = [...(await readRepo(FILE)).matchAll(/^\s*image: (\S+)$/gm)].map((match) => match[1] ?? "");
    assert.ok(images.length > 0);
    for (const image of images) assert.match(image, /:\d+\.\d+\.\d+$/);
  });
});

describe("kubernetes manifest, parsed", () => {
  let resources: Resource[] | null = null;
  let why = "";

  before(async () => {
    try {
      const { stdout } = await promisify(execFile)("python3", ["-c", TO_JSON, join(root, FILE)]);
      resources = JSON.parse(stdout) as Resource[];
    } catch (error) {
      const { code, stderr } = error as { code?: unknown; stderr?: string };
      if (code !== "ENOENT" && !stderr?.includes("No module named 'yaml'")) throw error;
      why = "there is no python3 with the module yaml";
    }
  });

  const check = (name: string, body: (find: (kind: string) => Resource) => Promise<void> | void): void => {
    it(name, async (t) => {
      if (!resources) {
        t.skip(why);
        return;
      }
      const all = resources;
      await body((kind) => {
        const found = all.find((resource) => resource.kind === kind);
        assert.ok(found, `there is no ${kind}`);
        return found;
      });
    });
  };

  check("has one daemon, and never two at once", (find) => {
    const { spec } = find("Deployment");
    assert.equal(spec["replicas"], 1);
    assert.deepEqual(spec["strategy"], { type: "Recreate" });
  });

  check("probes health and readiness", (find) => {
    for (const { startupProbe, livenessProbe, readinessProbe } of podOf(find).containers) {
      assert.equal(startupProbe?.httpGet.path, "/healthz");
      assert.equal(livenessProbe?.httpGet.path, "/healthz");
      assert.equal(readinessProbe?.httpGet.path, "/readyz");
      assert.equal(readinessProbe?.httpGet.scheme, "HTTPS");
    }
  });

  check("runs without root, with the usual system calls, and with limits", (find) => {
    const pod = podOf(find);
    assert.equal(pod.securityContext.runAsNonRoot, true);
    assert.ok(pod.securityContext.runAsUser > 0);
    assert.deepEqual(pod.securityContext.seccompProfile, { type: "RuntimeDefault" });
    assert.equal(pod.automountServiceAccountToken, false);
    for (const { securityContext, resources } of [...pod.initContainers, ...pod.containers]) {
      const locked = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } };
      assert.deepEqual(securityContext, locked);
      assert.deepEqual(Object.keys(resources).sort(), ["limits", "requests"]);
    }
  });

  check("has settings that the daemon takes, and time to stop", async (find) => {
    const pod = podOf(find);
    // the variables that Kubernetes adds for the service would be read as settings
    assert.equal(pod.enableServiceLinks, false);
    const env = Object.fromEntries((pod.containers[0]?.env ?? []).map(({ name, value }) => [name, value]));
    assert.deepEqual(await unknownVariables(Object.keys(env)), []);
    const settings = await settingsOf(env);
    assert.equal(settings.insecure, false);
    assert.ok(pod.terminationGracePeriodSeconds > settings.drainSecs + ABORT_SECS);
  });

  check("does not start without its secrets", (find) => {
    const secrets = podOf(find).volumes.flatMap(({ secret }) => (secret ? [secret] : []));
    assert.deepEqual(secrets.map(({ secretName }) => secretName).sort(), ["forkd-tls", "forkd-token"]);
    for (const secret of secrets) assert.equal(secret.optional, false);
  });

  check("lets only labelled clients in", (find) => {
    assert.equal(find("Service").spec["type"], "ClusterIP");
    const { policyTypes, ingress } = find("NetworkPolicy").spec as { policyTypes: string[]; ingress: { from: object[] }[] };
    assert.deepEqual(policyTypes, ["Ingress"]);
    assert.deepEqual(ingress[0]?.from, [{ podSelector: { matchLabels: { "forkd.dev/client": "true" } } }]);
  });
});

function podOf(find: (kind: string) => Resource): Pod {
  return (find("Deployment").spec["template"] as { spec: Pod }).spec;
}
