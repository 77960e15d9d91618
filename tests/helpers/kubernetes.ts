// A Kubernetes control plane of a test: etcd, API server and controller-manager as processes with their own folder.
// There is no kubelet: tests write what one would report.

import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { controlPlane } from "./control-plane.ts";
import { patience } from "./patience.ts";

const run = promisify(execFile);
const READY_POLL_MS = 100;
/** For documentation (RFC 5737): the API server publishes an address, and refuses a loopback one */
const PUBLISHED = "192.0.2.1";
const LOG_LINES = 20;
/** Below those that the kernel gives to clients and to servers without a port of their own */
const PORTS = [20_000, 32_000] as const;

export type Component = "etcd" | "kube-apiserver" | "kube-controller-manager";
export type KubectlResult = { code: number | null; stdout: string; stderr: string };

type Ports = { etcd: number; peer: number; server: number };

export class TestKubernetes implements AsyncDisposable {
  /** address of the API server */
  readonly server: string;
  readonly folder: string;
  /** of a user who may do everything */
  readonly kubeconfig: string;
  /** with kubectl in it */
  readonly binary: string;
  readonly #prefix: string[];
  readonly #ports: Ports;
  readonly #running = new Map<Component, ChildProcess>();

  private constructor(binary: string, folder: string, prefix: string[], ports: Ports) {
    this.binary = binary;
    this.folder = folder;
    this.#prefix = prefix;
    this.#ports = ports;
    this.server = `https://127.0.0.1:${ports.server}`;
    this.kubeconfig = this.path("admin.kubeconfig");
  }

  /** The reason why there is no control plane on this machine */
  static async missing(): Promise<string | undefined> {
    const known = process.env["FORKD_TEST_NO_CLUSTER"];
    if (known !== undefined) return known;
    try {
      await controlPlane((line) => process.stderr.write(`test: ${line}\n`));
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** @param opts.prefix command that runs a program in another network namespace */
  static async start(opts: { prefix?: string[] } = {}): Promise<TestKubernetes> {
    const binary = await controlPlane((line) => process.stderr.write(`test: ${line}\n`));
    const folder = await mkdtemp(join(tmpdir(), "forkd-test-kubernetes-"));
    const [etcd, peer, server] = await freePorts(3);
    const cluster = new TestKubernetes(binary, folder, opts.prefix ?? [], { etcd, peer, server });
    try {
      await cluster.#makeKeys();
      await cluster.up("etcd");
      await cluster.up("kube-apiserver");
      await cluster.up("kube-controller-manager");
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** Starts a component, and waits until it is ready */
  async up(component: Component): Promise<void> {
    assert.ok(!this.#running.has(component), `${component} runs already`);
    const [program = "", ...args] = [...this.#prefix, this.binary, component, ...this.#options(component)];
    // Not the environment of the test: kubectl and client-go read proxies and kubeconfigs from it.
    const child = spawn(program, args, { env: { PATH: process.env["PATH"], HOME: this.folder }, stdio: ["ignore", "pipe", "pipe"] });
    const log = createWriteStream(this.#log(component), { flags: "a" });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    child.once("close", () => log.end());
    this.#running.set(component, child);
    const deadline = Date.now() + patience();
    while (!(await this.#isReady(component))) {
      const hasEnded = child.exitCode !== null || child.signalCode !== null;
      if (hasEnded || Date.now() > deadline)
        throw new Error(`${component} ${hasEnded ? "ended" : "is not ready"}: ${await this.logTail(component)}`);
      await sleep(READY_POLL_MS);
    }
    // With a leader lock it ends when the API server is away, and is started again. Without, its caches may wait for minutes.
    if (component === "kube-apiserver" && this.#running.has("kube-controller-manager")) {
      await this.kill9("kube-controller-manager");
      await this.up("kube-controller-manager");
    }
  }

  async kill9(component: Component): Promise<void> {
    const child = this.#running.get(component);
    assert.ok(child, `${component} does not run`);
    this.#running.delete(component);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  async logTail(component: Component): Promise<string> {
    return (await readFile(this.#log(component), "utf8")).split("\n").slice(-LOG_LINES).join("\n");
  }

  /** Runs kubectl and returns its output; throws if it fails */
  async kubectl(args: readonly string[], opts: { stdin?: string; token?: string; cwd?: string } = {}): Promise<string> {
    const { code, stdout, stderr } = await this.tryKubectl(args, opts);
    assert.equal(code, 0, `kubectl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  async tryKubectl(args: readonly string[], opts: { stdin?: string; token?: string; cwd?: string } = {}): Promise<KubectlResult> {
    const [program = "", ...rest] = [...this.#prefix, this.binary, "kubectl", ...args];
    const kubeconfig = opts.token === undefined ? this.kubeconfig : await this.kubeconfigOf(opts.token);
    const env = { PATH: process.env["PATH"], HOME: this.folder, KUBECONFIG: kubeconfig };
    const child = spawn(program, rest, {
      env,
      timeout: patience(),
      killSignal: "SIGKILL",
      stdio: ["pipe", "pipe", "pipe"],
      ...(opts.cwd === undefined ? {} : { cwd: opts.cwd }),
    });
    child.stdin.on("error", () => undefined); // EPIPE: it may end without reading its input
    child.stdin.end(opts.stdin ?? "");
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
    return { code: child.exitCode, stdout, stderr };
  }

  /** Answer of kubectl as an object */
  async json<T>(args: readonly string[], opts: { stdin?: string; token?: string } = {}): Promise<T> {
    return JSON.parse(await this.kubectl([...args, "-o", "json"], opts)) as T;
  }

  /** A machine as its kubelet would report it */
  async addMachine(name: string, labels: Record<string, string> = {}): Promise<void> {
    await this.kubectl(["create", "-f", "-"], { stdin: JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name, labels } }) });
    const now = new Date().toISOString();
    const ready = { type: "Ready", status: "True", reason: "KubeletReady", message: "", lastHeartbeatTime: now, lastTransitionTime: now };
    const status = JSON.stringify({ status: { conditions: [ready] } });
    await this.kubectl(["patch", "node", name, "--subresource=status", "--type=merge", "-p", status]);
  }

  /** A kubeconfig with this bearer token */
  async kubeconfigOf(token: string, namespace = "default"): Promise<string> {
    const file = this.path(`${Buffer.from(token).toString("base64url").slice(-24)}-${namespace}.kubeconfig`);
    await writeFile(file, JSON.stringify(this.#config(token, namespace)), { mode: 0o600 });
    return file;
  }

  /** The certificate that signed the API server's */
  get ca(): string {
    return this.path("ca.crt");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // In this order: each one logs errors without the next.
    for (const component of ["kube-controller-manager", "kube-apiserver", "etcd"] as const)
      if (this.#running.has(component)) await this.kill9(component);
    await rm(this.folder, { recursive: true, force: true });
  }

  #log(component: Component): string {
    return this.path(`${component}.log`);
  }

  #options(component: Component): string[] {
    const { etcd, peer, server } = this.#ports;
    const etcdUrl = `http://127.0.0.1:${etcd}`;
    const peerUrl = `http://127.0.0.1:${peer}`;
    if (component === "etcd")
      return [
        `--data-dir=${this.path("etcd")}`,
        `--listen-client-urls=${etcdUrl}`,
        `--advertise-client-urls=${etcdUrl}`,
        `--listen-peer-urls=${peerUrl}`,
        `--initial-advertise-peer-urls=${peerUrl}`,
        `--initial-cluster=default=${peerUrl}`,
      ];
    if (component === "kube-controller-manager")
      return [
        `--kubeconfig=${this.kubeconfig}`,
        `--service-account-private-key-file=${this.path("accounts.key")}`,
        `--root-ca-file=${this.ca}`,
        "--leader-elect=false",
        // Machines of a test have no kubelet that would report; a DaemonSet starts no pod on one that is lost.
        "--node-monitor-grace-period=24h",
        "--node-startup-grace-period=24h",
        "--bind-address=127.0.0.1",
        // It serves only health and metrics, which tests do not ask for.
        "--secure-port=0",
      ];
    return [
      `--etcd-servers=${etcdUrl}`,
      "--bind-address=127.0.0.1",
      `--secure-port=${server}`,
      `--advertise-address=${PUBLISHED}`,
      "--endpoint-reconciler-type=none",
      `--tls-cert-file=${this.path("server.crt")}`,
      `--tls-private-key-file=${this.path("server.key")}`,
      `--client-ca-file=${this.ca}`,
      `--token-auth-file=${this.path("tokens.csv")}`,
      "--authorization-mode=Node,RBAC",
      "--service-account-issuer=https://kubernetes.default.svc",
      `--service-account-signing-key-file=${this.path("accounts.key")}`,
      `--service-account-key-file=${this.path("accounts.key")}`,
      "--service-cluster-ip-range=10.96.0.0/16",
      `--requestheader-client-ca-file=${this.ca}`,
      "--requestheader-allowed-names=aggregator",
      "--requestheader-username-headers=X-Remote-User",
      "--requestheader-group-headers=X-Remote-Group",
      "--requestheader-extra-headers-prefix=X-Remote-Extra-",
      `--proxy-client-cert-file=${this.path("aggregator.crt")}`,
      `--proxy-client-key-file=${this.path("aggregator.key")}`,
      `--audit-policy-file=${this.path("audit-policy.json")}`,
      `--audit-log-path=${this.path("audit.log")}`,
      "--audit-log-mode=blocking",
    ];
  }

  async #isReady(component: Component): Promise<boolean> {
    if (component === "kube-apiserver") return (await this.tryKubectl(["get", "--raw", "/readyz"])).code === 0;
    // The default service account of a namespace is made by the controller-manager.
    if (component === "kube-controller-manager") return (await this.tryKubectl(["get", "serviceaccount", "default"])).code === 0;
    return (await readFile(this.#log(component), "utf8").catch(() => "")).includes("ready to serve client requests");
  }

  #config(token: string, namespace: string): object {
    return {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "test", cluster: { server: this.server, "certificate-authority": this.ca } }],
      users: [{ name: "test", user: { token } }],
      contexts: [{ name: "test", context: { cluster: "test", user: "test", namespace } }],
      "current-context": "test",
    };
  }

  async #makeKeys(): Promise<void> {
    const admin = randomBytes(16).toString("hex");
    await writeFile(this.path("tokens.csv"), `${admin},admin,admin,"system:masters"\n`, { mode: 0o600 });
    await writeFile(this.kubeconfig, JSON.stringify(this.#config(admin, "default")), { mode: 0o600 });
    const policy = { apiVersion: "audit.k8s.io/v1", kind: "Policy", omitStages: ["RequestReceived"], rules: [{ level: "Metadata" }] };
    await writeFile(this.path("audit-policy.json"), JSON.stringify(policy));
    await this.#certificate("ca", "/CN=test");
    await this.#certificate("server", "/CN=kube-apiserver", "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc");
    await this.#certificate("aggregator", "/CN=aggregator");
    await this.#openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", this.path("accounts.key"));
    await mkdir(this.path("etcd"), { mode: 0o700 });
  }

  async #certificate(name: string, subject: string, names?: string): Promise<void> {
    const signer = name === "ca" ? [] : ["-CA", this.path("ca.crt"), "-CAkey", this.path("ca.key")];
    const extension = names === undefined ? [] : ["-addext", `subjectAltName=${names}`];
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", this.path(`${name}.key`)];
    await this.#openssl("req", "-x509", ...key, "-subj", subject, "-days", "2", ...signer, ...extension, "-out", this.path(`${name}.crt`));
  }

  async #openssl(...args: string[]): Promise<void> {
    await run("openssl", args, { timeout: patience() });
  }
}

/** Ports that were free a moment ago, all different, and none that a client or another test gets from the kernel meanwhile */
async function freePorts(count: number): Promise<[number, number, number]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = randomInt(...PORTS);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports] as [number, number, number];
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, "127.0.0.1"), "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return false;
    throw error;
  }
  await promisify(server.close.bind(server))();
  return true;
}
