// A gateway that serves the agent-sandbox API, and requests to it as the API server of Kubernetes makes them.

import { execFile } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { request as httpsRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { createLog } from "@forkd/daemon/observe/log";
import { gatewayOptions } from "../../src/options.ts";
import { startGateway, type Gateway } from "../../src/gateway.ts";
import { KEY, problem, type FakeNode } from "./fake-node.ts";
import { ADMIN } from "./gateway.ts";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

const run = promisify(execFile);

type Certificate = { cert: Buffer; key: Buffer };
export type Reply = { status: number; headers: IncomingHttpHeaders; body: never };
export type Ask = { method?: string; headers?: Record<string, string>; body?: unknown; as?: Certificate | null; user?: string | null };

export type AgentsFixture = {
  gateway: Gateway;
  ask: (path: string, ask?: Ask) => Promise<Reply>;
  open: (path: string, ask?: Ask) => Promise<IncomingMessage>;
  /** of the aggregation layer, of the same authority with another name, and of another authority */
  proxy: Certificate;
  other: Certificate;
  foreign: Certificate;
  /** authority of the server's certificate */
  ca: Buffer;
  /** first token of the cluster */
  token: string;
};

/** Documents of the API server that kubectl asks for before any others */
const OWN: Record<string, object> = {
  "/api": { kind: "APIVersions", versions: ["v1"] },
  "/api/v1": {
    kind: "APIResourceList",
    groupVersion: "v1",
    resources: [{ name: "namespaces", namespaced: false, kind: "Namespace", verbs: ["get"] }],
  },
  "/version": { major: "1", minor: "36", gitVersion: "v1.36.3" },
};

let made: Promise<string> | null = null;

/** Certificates take a moment: once per process */
async function certificates(): Promise<string> {
  made ??= (async () => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-agents-"));
    // An asynchronous removal would not begin any more.
    process.once("exit", () => rmSync(dir, { recursive: true, force: true }));
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];
    const make = async (name: string, subject: string, signer?: string): Promise<void> => {
      const by = signer === undefined ? [] : ["-CA", join(dir, `${signer}.crt`), "-CAkey", join(dir, `${signer}.key`)];
      const more = signer === undefined ? [] : ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
      const files = ["-keyout", join(dir, `${name}.key`), "-out", join(dir, `${name}.crt`)];
      await run("openssl", ["req", "-x509", ...key, "-days", "2", "-subj", subject, ...by, ...more, ...files]);
    };
    await make("ca", "/CN=ca");
    await make("ca2", "/CN=ca");
    await make("server", "/CN=server", "ca");
    await make("proxy", "/CN=aggregator", "ca");
    await make("other", "/CN=somebody", "ca");
    await make("foreign", "/CN=aggregator", "ca2");
    return dir;
  })();
  return made;
}

export async function serveAgentsApi(t: TestContext, nodes: FakeNode[]): Promise<AgentsFixture> {
  const certs = await certificates();
  const dir = await mkdtemp(join(tmpdir(), "forkd-gateway-"));
  t.after(async () => rm(dir, { recursive: true, force: true }));
  await writeFile(join(dir, "key"), KEY, { mode: 0o600 });
  await writeFile(join(dir, "token"), ADMIN, { mode: 0o600 });
  const options = gatewayOptions({
    nodes: nodes.map(({ url }) => url).join(","),
    bind: "127.0.0.1:0",
    state: join(dir, "state"),
    clusterKeyFile: join(dir, "key"),
    tokenFile: join(dir, "token"),
    tlsCert: join(certs, "server.crt"),
    tlsKey: join(certs, "server.key"),
    agentsBind: "127.0.0.1:0",
    agentsClientCa: join(certs, "ca.crt"),
    agentsClientNames: "aggregator",
    drainSecs: 0,
  });
  const gateway = await startGateway(options, { log: createLog("silent") });
  t.after(async () => gateway.stop());
  const port = Number(gateway.agentsBind.split(":")[1]);
  const ca = await readFile(join(certs, "ca.crt"));
  const certificate = async (name: string): Promise<Certificate> => ({
    cert: await readFile(join(certs, `${name}.crt`)),
    key: await readFile(join(certs, `${name}.key`)),
  });
  const [proxy, other, foreign] = [await certificate("proxy"), await certificate("other"), await certificate("foreign")];
  const open = async (path: string, ask: Ask = {}): Promise<IncomingMessage> => {
    const { body, as = proxy, user = "ann" } = ask;
    const bytes = body === undefined ? undefined : typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const outgoing = httpsRequest(
        {
          host: "127.0.0.1",
          port,
          path,
          ca,
          agent: false,
          ...as,
          method: ask.method ?? (body === undefined ? "GET" : "POST"),
          headers: {
            ...(user === null ? {} : { "x-remote-user": user, "x-remote-group": "system:authenticated" }),
            ...(bytes === undefined ? {} : { "content-type": "application/json", "content-length": String(Buffer.byteLength(bytes)) }),
            ...ask.headers,
          },
        },
        resolve,
      );
      outgoing.once("error", reject);
      outgoing.end(bytes);
    });
  };
  const ask = async (path: string, given?: Ask): Promise<Reply> => {
    const response = await open(path, given);
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    const text = Buffer.concat(pieces).toString();
    const isJson = response.headers["content-type"]?.startsWith("application/json") === true;
    return { status: response.statusCode ?? 0, headers: response.headers, body: (isJson ? JSON.parse(text) : text) as never };
  };
  return { gateway, ask, open, proxy, other, foreign, ca, token: ADMIN };
}

/** What the API server's aggregation layer does, without one: passes requests on with its certificate, for the user ann */
export async function aggregate(t: TestContext, { gateway, proxy }: AgentsFixture): Promise<string> {
  const port = Number(gateway.agentsBind.split(":")[1]);
  const server = createServer((request, response) => {
    const own = OWN[(request.url ?? "").split("?")[0] ?? ""];
    if (own) {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(own));
      return;
    }
    const { authorization: _checked, host: _own, ...headers } = request.headers;
    const options = { host: "127.0.0.1", port, ...proxy, rejectUnauthorized: false, agent: false };
    const outgoing = httpsRequest(
      { ...options, method: request.method, path: request.url, headers: { ...headers, "x-remote-user": "ann" } },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      },
    );
    outgoing.on("error", () => response.destroy());
    response.once("close", () => outgoing.destroy());
    request.pipe(outgoing);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(async () => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export type FakeSandbox = Record<string, unknown> & {
  id: string;
  name: string | null;
  project: string;
  state: string;
  metadata: Record<string, string>;
};

/** Lets a fake node keep sandboxes: made, listed, read, changed, ended */
export function keepSandboxes(node: FakeNode): Map<string, FakeSandbox> {
  const kept = new Map<string, FakeSandbox>();
  let count = 0;
  const make = (project: string, given: Record<string, unknown>): FakeSandbox => {
    const id = `sb-${node.code}${String(++count).padStart(12, "a").replaceAll("0", "b").replaceAll("1", "c").replaceAll(/[89]/g, "d")}`;
    const now = 1_700_000_000 + count;
    const ttl = given["ttl_secs"];
    const made: FakeSandbox = {
      id,
      project,
      name: (given["name"] as string | undefined) ?? null,
      snapshot_tag: given["snapshot_tag"] ?? "python",
      state: "running",
      reason: null,
      isolation: "emulated",
      metadata: (given["metadata"] as Record<string, string> | undefined) ?? {},
      created_at_unix: now,
      created_at_unix_ms: now * 1000,
      last_active_unix: now,
      expires_at_unix: typeof ttl === "number" ? Math.floor(Date.now() / 1000) + ttl : null,
      on_timeout: given["on_timeout"] ?? "end",
    };
    kept.set(id, made);
    return made;
  };
  const find = (project: string | null, reference: string): FakeSandbox | undefined =>
    [...kept.values()].find((one) => one.project === project && (one.id === reference || one.name === reference));
  const event = (type: string, { id, project }: FakeSandbox): void => node.emit(type, { sandbox: id, project });
  const missing = { status: 404, body: problem("NOT_FOUND", "There is no such sandbox.") };
  node.routes.set("GET /v1/sandboxes", ({ claim: { project } }) => ({
    body: [...kept.values()].filter((one) => project === "*" || one.project === project),
  }));
  node.routes.set("POST /v1/sandboxes", ({ body, claim: { project } }) => {
    const given = JSON.parse(body) as Record<string, unknown>;
    if (typeof given["name"] === "string" && find(project, given["name"])) return { status: 409, body: problem("EXISTS", "There is one.") };
    const made = make(project ?? "default", given);
    event("sandbox.created", made);
    return { status: 201, body: [made] };
  });
  node.routes.set("GET /v1/sandboxes/*", ({ url, claim: { project } }) => {
    const found = find(project, reference(url));
    return found ? { body: found } : missing;
  });
  node.routes.set("PATCH /v1/sandboxes/*", ({ url, body, claim: { project } }) => {
    const found = find(project, reference(url));
    if (!found) return missing;
    Object.assign(found, JSON.parse(body));
    event("sandbox.updated", found);
    return { body: found };
  });
  node.routes.set("DELETE /v1/sandboxes/*", ({ url, claim: { project } }) => {
    const found = find(project, reference(url));
    if (!found) return missing;
    kept.delete(found.id);
    event("sandbox.deleted", found);
    return { status: 204 };
  });
  node.routes.set("POST /v1/sandboxes/*", ({ url, body, claim: { project } }) => {
    const found = find(project, reference(url));
    if (!found) return missing;
    const action = url.split("/").at(-1);
    if (action === "suspend") found.state = "suspended";
    if (action === "resume") found.state = "running";
    const snapshot = { tag: "b-1", id: "sn-1", pause_us: 900, delta_bytes: 4096, created_at_unix: 1_700_000_500 };
    if (action === "branch") return { status: 201, body: { ...snapshot, ...JSON.parse(body) } };
    if (action === "fork") {
      const { n, metadata } = JSON.parse(body) as { n: number; metadata: Record<string, string> };
      const sandboxes = Array.from({ length: n }, () => make(found.project, { metadata, snapshot_tag: "b-1" }));
      for (const child of sandboxes) event("sandbox.created", child);
      return { status: 201, body: { snapshot, sandboxes } };
    }
    event(`sandbox.${action}ed`, found);
    return { body: found };
  });
  return kept;
}

function reference(url: string): string {
  return decodeURIComponent(url.split("?")[0]?.split("/")[3] ?? "");
}
