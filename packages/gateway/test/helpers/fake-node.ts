// A node of a cluster without VMs: a small HTTP server that checks the gateway's statements and answers by a table.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createSecretKey } from "node:crypto";
import { once } from "node:events";
import { endServer, followHandshakes } from "@forkd/runtime/util/end-server";
import { ClaimReader, IDENTITY_HEADER, type Claim } from "@forkd/daemon/cluster/identity";
import { sumOf } from "../../src/nodes/uses.ts";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { TestContext } from "node:test";

export const KEY = "0123456789abcdef0123456789abcdef";

export type Seen = { method: string; url: string; headers: IncomingMessage["headers"]; rawHeaders: string[]; body: string; claim: Claim };

type Tls = { key: Buffer; cert: Buffer };
type Answer = { status?: number; headers?: Record<string, string>; body?: unknown };
type Handler = (seen: Seen, response: ServerResponse, request: IncomingMessage) => Answer | undefined | Promise<Answer | undefined>;

export class FakeNode {
  readonly code: string;
  /** requests of clients, without those of the gateway itself */
  readonly seen: Seen[] = [];
  /** names of revoked tokens that any request told */
  readonly revoked = new Set<string>();
  snapshots: object[] = [];
  images: object[] = [];
  sandboxes = 0;
  maxSandboxes = 100;
  isCordoned = false;
  isLeaving = false;
  /** projects that gateways made here, and names of those that own something */
  readonly projects = new Map<string, object>();
  readonly owners = new Set<string>();
  /** what each project uses */
  used: Record<string, number> = {};
  /** routes by "METHOD path" or a prefix that ends with "*" */
  readonly routes = new Map<string, Handler>();
  readonly #server: Server;
  readonly #scheme: "http" | "https";
  readonly #reader = new ClaimReader([createSecretKey(Buffer.from(KEY))]);
  readonly #events = new Set<ServerResponse>();
  lastEventId = 0;
  port = 0;

  constructor(code: string, tls?: Tls) {
    this.code = code;
    const serve = (request: IncomingMessage, response: ServerResponse): void => void this.#serve(request, response);
    this.#server = tls ? createTlsServer(tls, serve) : createServer(serve);
    followHandshakes(this.#server);
    this.#scheme = tls ? "https" : "http";
  }

  static async start(t: TestContext, code: string, tls?: Tls): Promise<FakeNode> {
    const node = new FakeNode(code, tls);
    await node.listen();
    t.after(async () => node.close());
    return node;
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}`;
  }

  async listen(): Promise<void> {
    await once(this.#server.listen(this.port, "127.0.0.1"), "listening");
    ({ port: this.port } = this.#server.address() as AddressInfo);
  }

  async close(): Promise<void> {
    await endServer(this.#server);
  }

  onUpgrade(listener: (request: IncomingMessage, socket: Duplex, head: Buffer) => void): void {
    this.#server.on("upgrade", listener);
  }

  emit(type: string, facts: object): void {
    this.lastEventId++;
    for (const response of this.#events)
      response.write(`id: ${this.lastEventId}\nevent: ${type}\ndata: ${JSON.stringify({ id: this.lastEventId, type, ...facts })}\n\n`);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", url = "/", headers, rawHeaders } = request;
    let claim: Claim;
    try {
      claim = this.#reader.read(String(headers[IDENTITY_HEADER]), { method, url });
    } catch (error) {
      response.writeHead(401, { "content-type": "application/json" }).end(JSON.stringify({ error: String(error), code: "UNAUTHORIZED" }));
      return;
    }
    for (const [name] of claim.revoked) this.revoked.add(name);
    const [path = ""] = url.split("?");
    if (claim.name === "gateway" && method === "GET" && this.#ofGateway(path, claim, response)) return;
    if (claim.name === "gateway" && path.startsWith("/v1/projects")) {
      this.#changeProject(method, path, await textOf(request), response);
      return;
    }
    const key = [...this.routes.keys()]
      .toSorted((a, b) => b.length - a.length)
      .find((each) => (each.endsWith("*") ? `${method} ${path}`.startsWith(each.slice(0, -1)) : each === `${method} ${path}`));
    const handler = key === undefined ? undefined : this.routes.get(key);
    const pieces: Buffer[] = [];
    if (key?.startsWith("STREAM") !== true && !headers["x-no-read"]) for await (const piece of request) pieces.push(piece as Buffer);
    const seen = { method, url, headers, rawHeaders, body: Buffer.concat(pieces).toString(), claim };
    this.seen.push(seen);
    if (!handler && method === "GET" && path === "/v1/snapshots") return send(response, { body: this.snapshots });
    const answer = handler ? await handler(seen, response, request) : { status: 404, body: problem("NOT_FOUND", `There is no ${path}.`) };
    if (answer) send(response, answer);
  }

  #changeProject(method: string, path: string, text: string, response: ServerResponse): void {
    const { name = path.split("/").at(-1) ?? "", ...quota } = (text === "" ? {} : JSON.parse(text)) as { name?: string };
    if (method === "DELETE" && this.owners.has(name)) {
      send(response, { status: 409, body: problem("IN_USE", `Cannot remove project ${name}: it owns 1 sandboxes (sb-1).`) });
      return;
    }
    if (method === "DELETE") this.projects.delete(name);
    else this.projects.set(name, { name, quota, created_at_unix: 1 });
    send(response, { body: {} });
  }

  #ofGateway(path: string, { project }: Claim, response: ServerResponse): boolean {
    if (path === "/v1/status") send(response, { body: this.status() });
    else if (path === "/v1/snapshots") send(response, { body: this.snapshots });
    else if (path === "/v1/images") send(response, { body: this.images });
    else if (path === "/v1/projects") send(response, { body: [...this.projects.values()] });
    else if (path === "/v1/quota") send(response, { body: { project, limits: {}, used: { ...sumOf([]), ...this.used } } });
    else if (path === "/v1/events") this.openEvents(response);
    else return false;
    return true;
  }

  openEvents(response: ServerResponse, since = this.lastEventId): void {
    response.writeHead(200, { "content-type": "text/event-stream" }).write(`retry: 1000\nid: ${since}\n\n`);
    this.#events.add(response);
    response.once("close", () => this.#events.delete(response));
  }

  status(): object {
    return {
      version: "1.2.3",
      node: this.code,
      accelerator: "tcg",
      accelerator_reason: "asked for",
      isolation_policy: "auto",
      isolation: "emulated",
      confinement: "none",
      confinement_policy: "preferred",
      confinement_reason: null,
      engine: "QEMU 8.2.1",
      sandboxes: this.sandboxes,
      snapshots: this.snapshots.length,
      images: 0,
      cordoned: this.isCordoned || this.isLeaving,
      leaving: this.isLeaving,
      pool_waiting: 0,
      branches_in_flight: 0,
      limits: { max_sandboxes: this.maxSandboxes, max_memory_mib: null, max_disk_mib: null, min_free_mib: 0, branch_concurrency: 4 },
      sandbox_limits: { applicable: [], reason: null },
      memory: { committed_mib: 0, available_mib: 100_000 },
      disk: { free_mib: 100_000 },
      load: 0,
    };
  }
}

export function problem(code: string, error: string): object {
  return { error, code, hint: "", request_id: "r" };
}

export function snapshot(tag: string, id: string, over: object = {}): object {
  return {
    tag,
    id,
    project: "default",
    visibility: "private",
    status: "ready",
    bootable: true,
    memory_mib: 128,
    vcpus: 1,
    parent_tag: null,
    delta_bytes: null,
    pool: 0,
    created_at_unix: 1,
    ...over,
  };
}

async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

function send(response: ServerResponse, { status = 200, headers = {}, body }: Answer): void {
  const bytes = body === undefined ? "" : JSON.stringify(body);
  response.writeHead(status, { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers }).end(bytes);
}
