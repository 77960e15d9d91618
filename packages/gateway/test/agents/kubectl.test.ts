// kubectl with the agent-sandbox API. tests/cluster has the same with a real API server between, and real sandboxes.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, it, type TestContext } from "node:test";
import { promisify } from "node:util";
import { FakeNode, snapshot } from "../helpers/fake-node.ts";
import { aggregate, keepSandboxes, serveAgentsApi } from "../helpers/agents.ts";

const run = promisify(execFile);
const WITHIN_MS = 60_000;

const missing = await run("kubectl", ["version", "--client"]).then(
  () => undefined,
  (error: Error) => `no kubectl: ${error.message}`,
);

type Result = { code: number | null; stdout: string; stderr: string };

describe("kubectl", { skip: missing }, () => {
  it("creates, lists, watches, waits for, changes and deletes sandboxes", async (t) => {
    const kubectl = await setUp(t);
    const seen = new AbortController();
    const watching = kubectl(["get", "sandboxes", "--watch", "-o", "name"], "", seen.signal);
    const created = await kubectl(["create", "-f", "-"], sandbox("one"));
    assert.equal(created.stdout, "sandbox.agents.x-k8s.io/one created\n", created.stderr);
    assert.match((await kubectl(["wait", "--for=condition=Ready", "sandbox/one", "--timeout=20s"])).stdout, /condition met/);
    const listed = await kubectl(["get", "sbx"]);
    assert.match(listed.stdout, /^NAME +STATE +SNAPSHOT +NODE +AGE\none +running +python +aaaa /);
    assert.match((await kubectl(["label", "sandbox", "one", "team=red"])).stdout, /labeled/);
    assert.match((await kubectl(["get", "sandboxes", "-l", "team=red", "-A", "--no-headers"])).stdout, /^default +one /);
    const changed = await kubectl(["patch", "sandbox", "one", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}']);
    assert.match(changed.stdout, /patched/, changed.stderr);
    assert.match(
      (await kubectl(["get", "sandbox", "one", "-o", "jsonpath={.metadata.annotations.forkd\\.dev/state}"])).stdout,
      /^suspended$/,
    );
    assert.equal((await kubectl(["delete", "sandbox", "one"])).stdout, 'sandbox.agents.x-k8s.io "one" deleted\n');
    const gone = await kubectl(["get", "sandbox", "one"]);
    assert.match(gone.stderr, /NotFound.*"one" not found/);
    seen.abort();
    assert.match((await watching).stdout, /^(sandbox\.agents\.x-k8s\.io\/one\n)+$/);
  });

  it("applies manifests again without a change, and shows refusals by name", async (t) => {
    const kubectl = await setUp(t);
    assert.match((await kubectl(["apply", "-f", "-"], sandbox("one"))).stdout, /created/);
    assert.match((await kubectl(["apply", "-f", "-"], sandbox("one"))).stdout, /unchanged/);
    const refused = await kubectl(["apply", "-f", "-"], sandbox("two", { hostNetwork: true }));
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /spec\.podTemplate\.spec\.hostNetwork: a microVM shares no namespace with its host/);
    assert.match((await kubectl(["create", "--dry-run=server", "-f", "-"], sandbox("three"))).stdout, /created \(server dry run\)/);
    assert.match((await kubectl(["get", "all"])).stdout, /sandbox\.agents\.x-k8s\.io\/one/);
    const { stdout } = await kubectl(
      ["create", "--raw", "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/one/fork", "-f", "-"],
      '{"spec":{"replicas":2}}',
    );
    assert.equal((JSON.parse(stdout) as { status: { sandboxes: unknown[] } }).status.sandboxes.length, 2);
    assert.match((await kubectl(["delete", "sandboxes", "--all"])).stdout, /^(sandbox.* deleted\n){3}$/);
  });
});

async function setUp(t: TestContext): Promise<(args: string[], stdin?: string, signal?: AbortSignal) => Promise<Result>> {
  const node = await FakeNode.start(t, "aaaa");
  keepSandboxes(node);
  node.snapshots = [snapshot("python", "sn-1")];
  const server = await aggregate(t, await serveAgentsApi(t, [node]));
  const home = await mkdtemp(join(tmpdir(), "forkd-kubectl-"));
  t.after(async () => rm(home, { recursive: true, force: true }));
  return async (args, stdin = "", signal) => {
    const env = { PATH: process.env["PATH"], HOME: home, KUBECONFIG: join(home, "none") };
    const child = spawn("kubectl", ["--server", server, ...args], { env, timeout: WITHIN_MS, killSignal: "SIGKILL" });
    signal?.addEventListener("abort", () => child.kill(), { once: true });
    child.stdin.on("error", () => undefined); // EPIPE: it may end without reading its input
    child.stdin.end(stdin);
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
    return { code: child.exitCode, stdout: out, stderr: err };
  };
}

function sandbox(name: string, more: object = {}): string {
  const spec = { podTemplate: { spec: { containers: [{ name: "main", image: "python" }], ...more } } };
  return JSON.stringify({ apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name }, spec });
}
