// Daemons and gateways of a Kubernetes cluster in a network namespace of the test, with what the scheduler and kubelets
// would report about them.

import assert from "node:assert/strict";
import { execFile, fork, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { Controller } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { TestKubernetes } from "./kubernetes.ts";
import { patience } from "./patience.ts";
import { until } from "./until.ts";

import type { Pod } from "./kubernetes-objects.ts";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "..", "..");
const CLI = join(ROOT, "packages", "cli", "bin", "forkd.mjs");
const RELAY = join(ROOT, "tests", "programs", "relay.ts");
const NODE_OPTIONS = ["--disable-warning=ExperimentalWarning"];
const PORT = 8889;
/** Each question starts kubectl, which takes longer than most things that a test waits for */
export const KUBECTL_POLL_MS = 500;
export const NAMESPACE = "forkd";
/** Of the gateways */
export const ACCOUNT = "system:serviceaccount:forkd:forkd-gateway";

export class TestGateway {
  readonly controller: Controller;
  /** token of its service account */
  readonly account: string;
  readonly #socket: string;
  readonly #children: readonly ChildProcess[];

  constructor({ socket, account, token }: { socket: string; account: string; token: string }, children: readonly ChildProcess[]) {
    this.#socket = socket;
    this.#children = children;
    this.account = account;
    this.controller = this.as(token);
  }

  /** A client with this token of the cluster; without retries, because tests check refusals */
  as(token: string): Controller {
    return new Controller({ socket: this.#socket, token, timeoutMs: patience(), retries: 0 });
  }

  get pid(): number {
    return this.#children[0]?.pid ?? 0;
  }

  async end(): Promise<void> {
    for (const child of this.#children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
  }
}

export class KubernetesNodes implements AsyncDisposable {
  readonly cluster: TestKubernetes;
  readonly daemons: TestDaemon[];
  /** token of the file that gateways have */
  readonly token = "first-token-of-the-cluster-0123456789abcdef";
  readonly #folder: string;
  readonly #enter: string[];
  #stack = new AsyncDisposableStack();
  readonly #gateways: TestGateway[] = [];

  private constructor(parts: { cluster: TestKubernetes; daemons: TestDaemon[]; folder: string; enter: string[] }) {
    this.cluster = parts.cluster;
    this.daemons = parts.daemons;
    this.#folder = parts.folder;
    this.#enter = parts.enter;
  }

  /** The reason why this machine cannot run such a cluster */
  static async missing(): Promise<string | undefined> {
    try {
      await run("unshare", [...unshareFlags(), "ip", "link", "set", "lo", "up"]);
    } catch (error) {
      return `no network namespaces: ${(error as Error).message}`;
    }
    return TestKubernetes.missing();
  }

  /** The first daemon has the snapshot `python` */
  static async start(count: number): Promise<KubernetesNodes> {
    await using stack = new AsyncDisposableStack();
    const folder = await mkdtemp(join(tmpdir(), "forkd-test-nodes-"));
    stack.defer(async () => rm(folder, { recursive: true, force: true }));
    // The namespace lives as long as this process, which ends when its input is closed.
    const holder = spawn("unshare", [...unshareFlags(), "sh", "-c", "echo $$; exec cat"], { stdio: ["pipe", "pipe", "inherit"] });
    stack.defer(() => void holder.kill("SIGKILL"));
    const [line] = (await once(holder.stdout, "data", { signal: AbortSignal.timeout(patience()) })) as [Buffer];
    const user = process.getuid?.() === 0 ? [] : ["--user", "--preserve-credentials"];
    const enter = ["nsenter", "--target", line.toString().trim(), ...user, "--net"];
    const ip = async (...words: string[]): Promise<unknown> => run(enter[0] ?? "", [...enter.slice(1), "ip", ...words]);
    await ip("link", "set", "lo", "up");
    // EndpointSlices refuse addresses of the loopback range; the device is the same.
    for (let at = 0; at < count; at++) await ip("addr", "add", `${addressOf(at)}/32`, "dev", "lo");

    const cluster = stack.use(await TestKubernetes.start({ prefix: enter }));
    const parts = { cluster, daemons: [] as TestDaemon[], folder, enter };
    const nodes = new KubernetesNodes(parts);
    await nodes.#apply(count);
    for (let at = 0; at < count; at++) {
      const daemon = stack.use(await TestDaemon.make());
      daemon.prefix = enter;
      parts.daemons.push(daemon);
      if (at === 0) await daemon.makePython();
      await nodes.startDaemon(at);
    }
    await nodes.#reportPods();
    nodes.#stack = stack.move();
    return nodes;
  }

  /** Takes a machine out of the cluster: its pod ends, and its kubelet says so */
  async leave(at: number): Promise<void> {
    await this.cluster.kubectl(["label", "node", machineOf(at), "forkd.dev/node-"]);
    await this.daemons[at]?.down();
    for (const { metadata } of await this.#pods(at))
      await this.cluster.kubectl([
        "-n",
        NAMESPACE,
        "delete",
        "pod",
        metadata?.name ?? "",
        "--force",
        "--grace-period=0",
        "--ignore-not-found",
      ]);
    const list = ["-n", NAMESPACE, "get", "endpointslices", "-l", "kubernetes.io/service-name=forkd-nodes", "-o", "json"];
    await until(async () => !(await this.cluster.kubectl(list)).includes(`"${addressOf(at)}"`), KUBECTL_POLL_MS);
  }

  async startDaemon(at: number): Promise<void> {
    const options = { bind: `${addressOf(at)}:${PORT}`, "tls-cert": this.#file("tls.crt"), "tls-key": this.#file("tls.key") };
    const all = { ...options, "cluster-key-file": this.#file("key") };
    await this.daemons[at]?.up(Object.entries(all).flatMap(([name, value]) => [`--${name}`, value]));
  }

  /** Starts a gateway with the rights of its service account, and waits until it answers */
  async gateway(opts: { account?: string } = {}): Promise<TestGateway> {
    const account = opts.account ?? (await this.cluster.kubectl(["-n", NAMESPACE, "create", "token", "forkd-gateway"])).trim();
    const env = {
      PATH: process.env["PATH"],
      HOME: this.#folder,
      KUBECONFIG: await this.cluster.kubeconfigOf(account, NAMESPACE),
      NODE_EXTRA_CA_CERTS: this.#file("ca.crt"),
    };
    const options = [
      "--kubernetes",
      "forkd-nodes",
      "--drain-machines",
      "--cluster-key-file",
      this.#file("key"),
      "--token-file",
      this.#file("token"),
    ];
    const [program, ...args] = [
      ...this.#enter,
      process.execPath,
      ...NODE_OPTIONS,
      CLI,
      "gateway",
      ...options,
      "--bind",
      "127.0.0.1:0",
      // the client library's name for what is behind a Unix socket
      "--allowed-hosts",
      "forkd",
      "--json",
    ];
    const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
    const log: string[] = [];
    createInterface(child.stderr).on("line", (line) => log.push(line));
    // Its log goes to the same output; both the log and the answer name the address.
    const bind = Promise.withResolvers<string | undefined>();
    createInterface(child.stdout).on("line", (line) => {
      log.push(line);
      const [, found] = /"bind": ?"([^"]+)"/.exec(line) ?? [];
      if (found !== undefined) bind.resolve(found);
    });
    child.once("exit", () => bind.resolve(undefined));
    const late = setTimeout(() => bind.resolve(undefined), patience());
    const address = await bind.promise;
    clearTimeout(late);
    if (address === undefined) child.kill("SIGKILL");
    assert.ok(address !== undefined, `the gateway did not start: ${log.join("\n")}`);
    const socket = join(this.#folder, `${this.#gateways.length}.sock`);
    const [enter = "", ...inside] = this.#enter;
    const relay = fork(RELAY, [socket, address.split(":").at(-1) ?? ""], {
      execPath: enter,
      execArgv: [...inside, process.execPath, ...NODE_OPTIONS],
    });
    await once(relay, "message", { signal: AbortSignal.timeout(patience()) });
    const gateway = new TestGateway({ socket, account, token: this.token }, [child, relay]);
    this.#gateways.push(gateway);
    return gateway;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const gateway of this.#gateways) await gateway.end();
    await this.#stack.disposeAsync();
  }

  async #apply(count: number): Promise<void> {
    const { cluster } = this;
    for (let at = 0; at < count; at++) await cluster.addMachine(machineOf(at), { "forkd.dev/node": "true" });
    await cluster.kubectl(["apply", "--server-side", "-k", join(ROOT, "deploy", "kubernetes", "cluster")]);
    await cluster.kubectl(["apply", "--server-side", "-f", join(ROOT, "deploy", "kubernetes", "drain", "rbac.yaml")]);
    await writeFile(this.#file("key"), "0123456789abcdef".repeat(4), { mode: 0o600 });
    await writeFile(this.#file("token"), this.token, { mode: 0o600 });
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];
    await run("openssl", ["req", "-x509", ...key, "-subj", "/CN=ca", "-keyout", this.#file("ca.key"), "-out", this.#file("ca.crt")]);
    const names = [
      "-subj",
      "/CN=nodes",
      "-addext",
      `subjectAltName=DNS:forkd-nodes.${NAMESPACE}.svc`,
      "-addext",
      "basicConstraints=critical,CA:FALSE",
    ];
    const signer = ["-CA", this.#file("ca.crt"), "-CAkey", this.#file("ca.key")];
    await run("openssl", ["req", "-x509", ...key, ...names, ...signer, "-keyout", this.#file("tls.key"), "-out", this.#file("tls.crt")]);
  }

  /** Binds each daemon's pod to its machine and gives it the daemon's address, as the scheduler and a kubelet would */
  async #reportPods(): Promise<void> {
    for (const at of this.daemons.keys()) {
      await until(async () => (await this.#pods(at)).length === 1, KUBECTL_POLL_MS);
      for (const pod of await this.#pods(at)) await runPod(this.cluster, pod, addressOf(at));
    }
  }

  async #pods(at: number): Promise<Pod[]> {
    const list = ["-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=node"];
    const { items } = await this.cluster.json<{ items: Pod[] }>(list);
    return items.filter((pod) => machineFor(pod) === machineOf(at));
  }

  #file(name: string): string {
    return join(this.#folder, name);
  }
}

/** What the scheduler and a kubelet would write */
export async function runPod(cluster: TestKubernetes, pod: Pod, ip: string, isReady = true): Promise<void> {
  const { name = "" } = pod.metadata ?? {};
  const binding = { apiVersion: "v1", kind: "Binding", metadata: { name }, target: { kind: "Node", name: machineFor(pod) } };
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}/binding`;
  await cluster.kubectl(["create", "--raw", path, "-f", "-"], { stdin: JSON.stringify(binding) });
  const conditions = [{ type: "Ready", status: isReady ? "True" : "False" }];
  const status = { phase: "Running", podIP: ip, podIPs: [{ ip }], conditions };
  const patch = ["--subresource=status", "--type=merge", "-p", JSON.stringify({ status })];
  await cluster.kubectl(["-n", NAMESPACE, "patch", "pod", name, ...patch]);
}

/** The machine that the DaemonSet made the pod for */
function machineFor(pod: Pod): string {
  const terms = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  const name = terms?.[0]?.matchFields?.[0]?.values?.[0];
  assert.ok(name !== undefined, "the pod is for no machine");
  return name;
}

function machineOf(at: number): string {
  return `machine-${at}`;
}

function addressOf(at: number): string {
  return `10.77.0.${at + 1}`;
}

function unshareFlags(): string[] {
  return process.getuid?.() === 0 ? ["--net"] : ["--user", "--map-root-user", "--net"];
}
