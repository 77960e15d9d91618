// The agent-sandbox API with real sandboxes and the Python client, without Kubernetes; tests/cluster has a real API server.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { aggregate, type Aggregation } from "../helpers/aggregation.ts";
import { TestCluster, type TestGateway } from "../helpers/cluster.ts";
import { pythonWith } from "../helpers/e2b-python.ts";
import { patience } from "../helpers/patience.ts";

import type { Controller } from "forkd";

const run = promisify(execFile);
const CLIENT = resolve(import.meta.dirname, "..", "programs", "agent-sandbox-client.py");
const CLIENT_VERSION = "1.0.8";
const SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const MORE = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default";
const KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];

type Sandbox = { metadata: { annotations: Record<string, string> }; status: { conditions: { type: string; status: string }[] } };
type Forked = { status: { sandboxes: { name: string; id: string }[] } };

describe("agent-sandbox API", () => {
  let cluster: TestCluster;
  let gateway: TestGateway;
  /** of the one daemon: another client of forkd */
  let controller: Controller;
  let api: Aggregation;
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "forkd-test-agents-"));
    cluster = await TestCluster.make();
    ({ controller } = await cluster.addNode([], async (daemon) => daemon.makePython()));
    await certificate("ca");
    await certificate("server");
    await certificate("aggregator");
    const tls = [`--tls-cert=${file("server.crt")}`, `--tls-key=${file("server.key")}`];
    const proxy = [`--agents-client-ca=${file("ca.crt")}`, "--agents-client-names=aggregator"];
    gateway = await cluster.addGateway([...tls, ...proxy, "--agents-bind=127.0.0.1:0"]);
    const [cert, key, ca] = await Promise.all(["aggregator.crt", "aggregator.key", "ca.crt"].map(async (name) => readFile(file(name))));
    assert.ok(cert && key && ca);
    api = await aggregate(gateway.agentsBind ?? "", { cert, key, ca });
  });

  after(async () => {
    await api?.close();
    await cluster?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  it("forks, suspends and resumes with what the sandbox has in its memory", async () => {
    const podTemplate = {
      spec: {
        containers: [
          { name: "main", image: "python", env: [{ name: "WORD", value: "här" }], volumeMounts: [{ name: "work", mountPath: "/work/a" }] },
        ],
        volumes: [{ name: "work", emptyDir: {} }],
      },
    };
    await ask("POST", SANDBOXES, of("agents.x-k8s.io", "Sandbox", "mother", { podTemplate }));
    const mother = await ask<Sandbox>("GET", `${SANDBOXES}/mother`);
    const id = mother.metadata.annotations["forkd.dev/id"] ?? "";
    assert.equal((await controller.getSandbox(id)).created_by, "kubernetes:ann");
    const { stdout } = await controller.execCommand(id, ["sh", "-c", "echo $WORD; ls -d /work/a"]);
    assert.equal(stdout, "här\n/work/a\n");
    await controller.evalCode(id, "x = 41");
    const { status } = await ask<Forked>("POST", `${SANDBOXES}/mother/fork`, { spec: { replicas: 2 } });
    assert.equal(status.sandboxes.length, 2);
    for (const child of status.sandboxes) assert.equal((await controller.evalCode(child.id, "x + 1")).value, 42);
    const suspended = await ask<Sandbox>("POST", `${SANDBOXES}/mother/suspend`, {});
    assert.equal(suspended.status.conditions[0]?.status, "False");
    assert.equal((await controller.getSandbox(id)).state, "suspended");
    await ask("POST", `${SANDBOXES}/mother/resume`, {});
    assert.equal((await controller.evalCode(id, "x + 1")).value, 42);
    await ask("POST", `${SANDBOXES}/mother/branch`, { spec: { tag: "prepared" } });
    await ask(
      "POST",
      SANDBOXES,
      of("agents.x-k8s.io", "Sandbox", "next", { podTemplate: { spec: { containers: [{ image: "prepared" }] } } }),
    );
    const next = await ask<Sandbox>("GET", `${SANDBOXES}/next`);
    assert.equal((await controller.evalCode(next.metadata.annotations["forkd.dev/id"] ?? "", "x + 1")).value, 42);
    for (const name of ["mother", "next", ...status.sandboxes.map((child) => child.name)]) await ask("DELETE", `${SANDBOXES}/${name}`);
    assert.equal((await controller.listSandboxes()).length, 0);
  });

  it("serves the unmodified Python client", async (t) => {
    const found = await pythonWith({ "k8s-agent-sandbox": CLIENT_VERSION });
    if ("reason" in found) {
      t.skip(found.reason);
      return;
    }
    const group = "extensions.agents.x-k8s.io";
    const podTemplate = { spec: { containers: [{ name: "main", image: "python" }] } };
    await ask("POST", `${MORE}/sandboxtemplates`, of(group, "SandboxTemplate", "python", { podTemplate }));
    const pool = { replicas: 1, sandboxTemplateRef: { name: "python" } };
    await ask("POST", `${MORE}/sandboxwarmpools`, of(group, "SandboxWarmPool", "python-pool", pool));
    const clusters = [{ name: "test", cluster: { server: api.url } }];
    const contexts = [{ name: "test", context: { cluster: "test", user: "test" } }];
    const kubeconfig = {
      apiVersion: "v1",
      kind: "Config",
      clusters,
      contexts,
      users: [{ name: "test", user: {} }],
      "current-context": "test",
    };
    await writeFile(file("kubeconfig"), JSON.stringify(kubeconfig), { mode: 0o600 });
    const seconds = String(Math.ceil(patience() / 1000));
    const args = [CLIENT, `https://${gateway.agentsBind}`, cluster.token, file("ca.crt"), "python-pool", seconds];
    const env = { PATH: process.env["PATH"], HOME: folder, KUBECONFIG: file("kubeconfig") };
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

  async function ask<T>(method: string, path: string, body?: object): Promise<T> {
    const given = body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(`${api.url}${path}`, { method, ...given });
    const text = await response.text();
    assert.ok(response.ok, text);
    assert.equal(response.headers.get("warning"), null);
    return JSON.parse(text) as T;
  }

  async function certificate(name: string): Promise<void> {
    const more = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    const signer = name === "ca" ? [] : ["-CA", file("ca.crt"), "-CAkey", file("ca.key"), ...more];
    const files = ["-keyout", file(`${name}.key`), "-out", file(`${name}.crt`)];
    await run("openssl", ["req", "-x509", ...KEY, "-days", "2", "-subj", `/CN=${name}`, ...signer, ...files]);
  }

  function file(name: string): string {
    return join(folder, name);
  }
});

function of(group: string, kind: string, name: string, spec: object): object {
  return { apiVersion: `${group}/v1beta1`, kind, metadata: { name }, spec };
}
