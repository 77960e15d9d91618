// A real HTTP server that accepts only requests of the route table and answers from a table.

import { createServer, type IncomingHttpHeaders, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { routes, type RouteName } from "../../../daemon/src/api/routes.ts";
import { SAMPLES } from "./samples.ts";
import type { Route } from "../../../daemon/src/api/route.ts";
import type { AddressInfo } from "node:net";

export type Seen = { route: RouteName; params: unknown; query: unknown; body: unknown; headers: IncomingHttpHeaders; url: string };
/** Answers the request and returns true, or returns false for an answer of the table */
export type Override = (seen: Seen, response: ServerResponse, count: number) => boolean | void | Promise<boolean | void>;

export class FakeDaemon implements AsyncDisposable {
  readonly seen: Seen[] = [];
  override: Override = () => false;
  connections = 0;
  socket = "";
  url = "";
  private readonly servers: Server[] = [];
  private folder = "";

  static async start(override?: Override): Promise<FakeDaemon> {
    const daemon = new FakeDaemon();
    if (override) daemon.override = override;
    daemon.folder = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
    daemon.socket = join(daemon.folder, "forkd.sock");
    await daemon.listen((server, done) => server.listen(daemon.socket, done));
    const tcp = await daemon.listen((server, done) => server.listen(0, "127.0.0.1", done));
    daemon.url = `http://127.0.0.1:${(tcp.address() as AddressInfo).port}`;
    return daemon;
  }

  get last(): Seen {
    const last = this.seen.at(-1);
    if (last === undefined) throw new Error("no request came");
    return last;
  }

  get names(): RouteName[] {
    return this.seen.map(({ route }) => route);
  }

  /** Closes every connection, as a daemon that stops does */
  cut(): void {
    for (const server of this.servers) server.closeAllConnections();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.servers) {
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
    }
    await rm(this.folder, { recursive: true });
  }

  private async listen(bind: (server: Server, done: () => void) => void): Promise<Server> {
    const server = createServer((request, response) => {
      this.serve(request, response).catch((error: unknown) => {
        if (!response.headersSent) problem(response, 400, { code: "BAD_REQUEST", error: String(error) });
      });
    });
    server.keepAliveTimeout = 60_000;
    server.on("connection", () => this.connections++);
    this.servers.push(server);
    await new Promise<void>((done) => bind(server, done));
    return server;
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://x");
    for (const [route, entry] of Object.entries<Route>(routes)) {
      const match = new RegExp(`^${entry.path.replaceAll(/:(\w+)/g, "(?<$1>[^/]+)").replace("*", ".*")}$`).exec(url.pathname);
      if (match === null || (request.method !== entry.method && entry.method !== "ALL")) continue;
      const seen = await this.read(route as RouteName, entry, request, url, match.groups ?? {});
      this.seen.push(seen);
      const count = this.names.filter((name) => name === route).length;
      if ((await this.override(seen, response, count)) === true) return;
      const [status, sample] = SAMPLES[route as RouteName];
      reply(response, status, entry, status === 204 ? undefined : sample);
      return;
    }
    problem(response, 404, { code: "NOT_FOUND", error: `No route ${request.method} ${url.pathname}.` });
  }

  private async read(route: RouteName, entry: Route, request: IncomingMessage, url: URL, groups: Record<string, string>): Promise<Seen> {
    const decoded = Object.fromEntries(Object.entries(groups).map(([key, value]) => [key, decodeURIComponent(value)]));
    const query = Object.fromEntries(
      [...new Set(url.searchParams.keys())].map((key) => {
        const all = url.searchParams.getAll(key);
        return [key, all.length > 1 ? all : all[0]];
      }),
    );
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const raw = Buffer.concat(chunks);
    return {
      route,
      url: request.url ?? "",
      headers: request.headers,
      params: entry.params?.parse(decoded),
      query: entry.query !== undefined ? entry.query.parse(query) : entry.method === "ALL" ? query : strictlyEmpty(query),
      body: bodyOf(entry, request, raw),
    };
  }
}

export function problem(response: ServerResponse, status: number, fields: { code: string; error: string; [key: string]: unknown }): true {
  response.writeHead(status, { "content-type": "application/json", "x-request-id": "req-1" });
  response.end(JSON.stringify({ hint: "Do something.", request_id: "req-1", ...fields }));
  return true;
}

function bodyOf(entry: Route, request: IncomingMessage, raw: Buffer): unknown {
  if (entry.body === "bytes") return raw;
  if (entry.body === undefined) {
    if (raw.length > 0) throw new Error("this route takes no body");
    return undefined;
  }
  if (request.headers["content-type"] !== "application/json") throw new Error("not JSON");
  // The request as sent is kept; parsing only validates it.
  const value: unknown = JSON.parse(raw.toString());
  entry.body.parse(value);
  return value;
}

function strictlyEmpty(query: object): undefined {
  if (Object.keys(query).length > 0) throw new Error("this route takes no query");
}

function reply(response: ServerResponse, status: number, entry: Route, sample: unknown): void {
  const kind = entry.responses[status];
  if (kind === undefined) throw new Error(`status ${status} is not one of the route's`);
  if (typeof kind === "object") kind.parse(sample);
  response.statusCode = status;
  response.setHeader("x-request-id", "req-1");
  if (sample === undefined) response.end();
  else if (typeof sample === "string") response.end(sample);
  else response.setHeader("content-type", "application/json").end(JSON.stringify(sample));
}
