// The agent-sandbox API behind the aggregation layer of a real API server: the commands of docs/agent-sandbox.md, kubectl
// and the Python client with real sandboxes.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { TestCluster, type TestGateway } from "../helpers/cluster.ts";
import { pythonWith } from "../helpers/e2b-python.ts";
import { TestKubernetes } from "../helpers/kubernetes.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { Controller } from "forkd";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "..", "..");
const CLIENT = join(ROOT, "tests", "programs", "agent-sandbox-client.py");
const CLIENT_VERSION = "1.0.8";
const SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";

type Sandbox = {
  metadata: { name: string; annotations: Record<string, string>; labels?: Record<string, string> };
  status: { conditions: { type: string; status: string }[] };
};
type Forked = { status: { sandboxes: { name: string; id: string }[] } };

const missing = await TestKubernetes.missing();

describe("agent-sandbox API", { skip: missing }, () => {
  let kubernetes: TestKubernetes;
  let cluster: TestCluster;
  let gateway: TestGateway;
  /** of the one daemon: another client of forkd */
  let controller: Controller;
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "forkd-test-agents-"));
    kubernetes = await TestKubernetes.start();
    cluster = await TestCluster.make();
    ({ controller } = await cluster.addNode([], async (daemon) => daemon.makePython()));
    await copyFile(kubernetes.ca, join(folder, "ca.crt"));
    await certificate();
    const tls = [`--tls-cert=${join(folder, "tls.crt")}`, `--tls-key=${join(folder, "tls.key")}`];
    const proxy = [`--agents-client-ca=${kubernetes.ca}`, "--agents-client-names=aggregator"];
    gateway = await cluster.addGateway([...tls, ...proxy, "--agents-bind=127.0.0.1:0"]);
    await writeFile(join(folder, "kubectl"), `#!/bin/sh\nexec '${kubernetes.binary}' kubectl "$@"\n`);
    await chmod(join(folder, "kubectl"), 0o755);
    await register();
  });

  after(async () => {
    await kubernetes?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  it("is installed and used by the commands of docs/agent-sandbox.md, in their order", async () => {
    const blocks = [...(await readFile(join(ROOT, "docs", "agent-sandbox.md"), "utf8")).matchAll(/^```sh\n([\s\S]*?)^```$/gm)];
    assert.equal(blocks.length, 4);
    for (const [, script = ""] of blocks) {
      const { code, output } = await shell(script);
      assert.equal(code, 0, `${script}\n${output}`);
    }
    assert.equal((await controller.listSandboxes()).length, 0);
    assert.ok((await controller.listSnapshots()).some(({ tag }) => tag === "prepared"));
  });

  it("serves the unmodified Python client", async (t) => {
    const found = await pythonWith({ "k8s-agent-sandbox": CLIENT_VERSION });
    if ("reason" in found) {
      t.skip(found.reason);
      return;
    }
    const seconds = String(Math.ceil(patience() / 1000));
    const args = [CLIENT, `https://${gateway.agentsBind}`, cluster.token, join(folder, "ca.crt"), "python-pool", seconds];
    const env = { PATH: process.env["PATH"], HOME: folder, KUBECONFIG: kubernetes.kubeconfig };
    const { stdout } = await run(found.python, args, { env, timeout: 2 * patience() });
    assert.deepEqual(JSON.parse(stdout), {
      status: "SandboxReady",
      run: ["out\n", "err\n", 3, false],
      timed_out: true,
      same: true,
      list: [
        ["bytes", 131_072, "file"],
        ["text", 7, "file"],
      ],
      exists: [true, false],
      cat: "häl lo",
      missing: 404,
      listed: true,
      found: true,
      adopted: true,
      gone: "SandboxNotFound",
      left: [],
    });
  });

  it("forks, suspends and resumes with what the sandbox has in its memory", async () => {
    await kubernetes.kubectl(["create", "-f", "-"], { stdin: sandbox("mother") });
    const mother = await get("mother");
    const id = mother.metadata.annotations["forkd.dev/id"] ?? "";
    await controller.evalCode(id, "x = 41");
    const fork = JSON.stringify({ spec: { replicas: 2, labels: { mother: "yes" } } });
    const { status } = JSON.parse(
      await kubernetes.kubectl(["create", "--raw", `${SANDBOXES}/mother/fork`, "-f", "-"], { stdin: fork }),
    ) as Forked;
    assert.equal(status.sandboxes.length, 2);
    for (const child of status.sandboxes) assert.equal((await controller.evalCode(child.id, "x + 1")).value, 42);
    await kubernetes.kubectl(["wait", "--for=condition=Ready", "sandbox", "-l", "mother=yes"]);
    await kubernetes.kubectl(["patch", "sandbox", "mother", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}']);
    assert.equal((await controller.getSandbox(id)).state, "suspended");
    assert.equal((await get("mother")).status.conditions.find(({ type }) => type === "Ready")?.status, "False");
    await kubernetes.kubectl(["create", "--raw", `${SANDBOXES}/mother/resume`, "-f", "-"], { stdin: "{}" });
    assert.equal((await controller.evalCode(id, "x + 1")).value, 42);
  });

  it("lets kubectl wait for what another client of forkd does", async () => {
    const { name, annotations } = (await get("mother")).metadata;
    const id = annotations["forkd.dev/id"] ?? "";
    const waiting = kubernetes.kubectl(["wait", "--for=delete", `sandbox/${name}`, `--timeout=${Math.ceil(patience() / 1000)}s`]);
    // kubectl says nothing about an object that is gone when it first looks
    await until(async () => isWatched(name));
    await controller.killSandbox(id);
    assert.match(await waiting, /condition met/);
    const made = await controller.spawnSandboxes("python", { name: "by-another" });
    await until(async () => (await kubernetes.tryKubectl(["get", "sandbox", "by-another"])).code === 0);
    assert.equal((await get("by-another")).metadata.annotations["forkd.dev/id"], made[0]?.id);
    await kubernetes.kubectl(["delete", "sandboxes", "--all"]);
    assert.equal((await controller.listSandboxes()).length, 0);
  });

  it("does what the rights of the user allow, and nothing else", async () => {
    await kubernetes.kubectl(["create", "serviceaccount", "reader"]);
    const token = (await kubernetes.kubectl(["create", "token", "reader"])).trim();
    assert.match((await kubernetes.tryKubectl(["get", "sandboxes"], { token })).stderr, /cannot list resource "sandboxes"/);
    const grant = async (verbs: string, resource: string): Promise<void> => {
      const name = resource.replaceAll(/[./]/g, "-");
      await kubernetes.kubectl(["create", "role", name, `--verb=${verbs}`, `--resource=${resource}`]);
      await kubernetes.kubectl(["create", "rolebinding", name, `--role=${name}`, "--serviceaccount=default:reader"]);
    };
    await grant("get,list,create", "sandboxes.agents.x-k8s.io");
    await until(async () => (await kubernetes.tryKubectl(["get", "sandboxes"], { token })).code === 0);
    await kubernetes.kubectl(["create", "-f", "-"], { stdin: sandbox("theirs"), token });
    const id = (await get("theirs")).metadata.annotations["forkd.dev/id"] ?? "";
    assert.equal((await controller.getSandbox(id)).created_by, "kubernetes:system:serviceaccount:default:reader");
    const forked = await kubernetes.tryKubectl(["create", "--raw", `${SANDBOXES}/theirs/fork`, "-f", "-"], { token, stdin: "{}" });
    assert.match(forked.stderr, /cannot create resource "sandboxes\/fork"/);
    assert.match((await kubernetes.tryKubectl(["delete", "sandbox", "theirs"], { token })).stderr, /cannot delete resource "sandboxes"/);
    assert.equal((await controller.listSandboxes()).length, 1);
    await kubernetes.kubectl(["delete", "sandbox", "theirs"]);
  });

  it("refuses by name what a microVM does not have", async () => {
    const { code, stderr } = await kubernetes.tryKubectl(["create", "-f", "-"], {
      stdin: sandbox("greedy", { hostNetwork: true, nodeName: "x" }),
    });
    assert.equal(code, 1);
    assert.match(stderr, /spec\.podTemplate\.spec\.hostNetwork: .*spec\.podTemplate\.spec\.nodeName: /s);
    assert.equal((await controller.listSandboxes()).length, 0);
  });

  it("answers only with the certificate of the aggregation layer", async () => {
    const address = `https://${gateway.agentsBind}${SANDBOXES}`;
    const options = ["--silent", "--cacert", join(folder, "ca.crt"), "--header", "X-Remote-User: admin"];
    const { stdout } = await run("curl", [...options, "--header", "X-Remote-Group: system:masters", address]);
    assert.equal((JSON.parse(stdout) as { reason: string }).reason, "Unauthorized");
  });

  it("stores no object for a sandbox", async () => {
    const metrics = await kubernetes.kubectl(["get", "--raw", "/metrics"]);
    assert.match(metrics, /apiserver_storage_objects|apiserver_resource_objects/);
    assert.doesNotMatch(metrics, /_objects\{[^}]*sandbox/);
  });

  async function get(name: string): Promise<Sandbox> {
    return kubernetes.json<Sandbox>(["get", "sandbox", name]);
  }

  /** Whether the API server answers a watch of this one sandbox */
  async function isWatched(name: string): Promise<boolean> {
    const lines = (await readFile(kubernetes.path("audit.log"), "utf8")).split("\n");
    return lines.some(
      (line) => line.includes('"verb":"watch"') && line.includes("/sandboxes?") && line.includes(`metadata.name%3D${name}`),
    );
  }

  async function certificate(): Promise<void> {
    const names = "subjectAltName=DNS:forkd.forkd.svc,IP:127.0.0.1";
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", join(folder, "tls.key")];
    const signer = [
      "-CA",
      kubernetes.ca,
      "-CAkey",
      kubernetes.path("ca.key"),
      "-addext",
      names,
      "-addext",
      "basicConstraints=critical,CA:FALSE",
    ];
    await run("openssl", ["req", "-x509", ...key, "-subj", "/CN=forkd", "-days", "2", ...signer, "-out", join(folder, "tls.crt")]);
  }

  /** The manifest's APIServices, for a Service that is an address of this machine */
  async function register(): Promise<void> {
    const port = Number(gateway.agentsBind?.split(":").at(-1));
    const text = await readFile(join(ROOT, "deploy", "kubernetes", "agents", "api-services.yaml"), "utf8");
    const services = parseAllDocuments(text).map((document) => document.toJS() as { spec: { service: { port: number } } });
    for (const { spec } of services) spec.service.port = port;
    await kubernetes.kubectl(["create", "namespace", "forkd"]);
    const service = { apiVersion: "v1", kind: "Service", metadata: { name: "forkd", namespace: "forkd" } };
    const all = [{ ...service, spec: { type: "ExternalName", externalName: "localhost" } }, ...services];
    for (const one of all) await kubernetes.kubectl(["create", "-f", "-"], { stdin: JSON.stringify(one) });
  }

  async function shell(script: string): Promise<{ code: number; output: string }> {
    const env = { PATH: `${folder}:${process.env["PATH"]}`, HOME: folder, KUBECONFIG: kubernetes.kubeconfig };
    return new Promise((done) => {
      execFile("bash", ["-euo", "pipefail", "-c", script], { cwd: folder, env, timeout: patience() }, (error, stdout, stderr) => {
        done({ code: error ? Number(error.code ?? 1) : 0, output: `${stdout}${stderr}` });
      });
    });
  }
});

function sandbox(name: string, more: object = {}): string {
  const spec = { podTemplate: { spec: { containers: [{ name: "main", image: "python" }], ...more } } };
  return JSON.stringify({ apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name }, spec });
}
