// The server over HTTP, with a daemon that accepts one token.

import assert from "node:assert/strict";
import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { AuthenticationError, ConnectionError, type Controller } from "forkd";
import { HttpServer } from "../src/http.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};
const JSON_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

type Answer = { status: number; headers: IncomingMessage["headers"]; body: string };

describe("over HTTP", () => {
  let server: HttpServer;
  let isThere = true;
  const errors: unknown[] = [];

  before(async () => {
    server = await HttpServer.listen({
      version: "1",
      host: "127.0.0.1",
      port: 0,
      connect: async (token) => daemonFor(token),
      idleSecs: 600,
      leaseSecs: 600,
      onError: (error) => errors.push(error),
    });
  });

  after(async () => server.close());

  function daemonFor(token: string): Controller {
    const version = async (): Promise<unknown> => {
      if (!isThere) throw new ConnectionError("DAEMON_UNREACHABLE", "Cannot reach the daemon.", { hint: "Start it." });
      if (token !== "good") throw new AuthenticationError("UNAUTHORIZED", "The token is not known.", { status: 401 });
      return {};
    };
    return { version } as unknown as Controller;
  }

  async function send(method: string, path: string, headers: Record<string, string> = {}, body?: unknown): Promise<Answer> {
    const outgoing = request(new URL(server.url).origin, {
      method,
      path,
      headers: { authorization: "Bearer good", ...JSON_HEADERS, ...headers },
    });
    outgoing.end(body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body));
    const [response] = (await once(outgoing, "response")) as [IncomingMessage];
    return { status: response.statusCode ?? 0, headers: response.headers, body: await text(response) };
  }

  it("begins a session, which ends when it is deleted", async () => {
    const begun = await send("POST", "/mcp", {}, INITIALIZE);
    assert.equal(begun.status, 200);
    const session = { "mcp-session-id": String(begun.headers["mcp-session-id"]), "mcp-protocol-version": "2025-11-25" };
    const ping = { jsonrpc: "2.0", id: 2, method: "ping" };
    assert.equal((await send("POST", "/mcp", session, ping)).status, 200);
    assert.equal((await send("DELETE", "/mcp", session)).status, 200);
    assert.equal((await send("POST", "/mcp", session, ping)).status, 404);
  });

  it("refuses what is not for it, and says why", async () => {
    const codes: [status: number, code: string, answer: Answer][] = [
      [404, "NOT_FOUND", await send("POST", "/", {}, INITIALIZE)],
      [404, "NOT_FOUND", await send("GET", "//")],
      [404, "NOT_FOUND", await send("GET", "/mcp/../healthz")],
      [405, "METHOD_NOT_ALLOWED", await send("TRACE", "/mcp")],
      [405, "METHOD_NOT_ALLOWED", await send("OPTIONS", "/mcp")],
      [403, "FORBIDDEN", await send("POST", "/mcp", { host: "evil.example" }, INITIALIZE)],
      [403, "FORBIDDEN", await send("POST", "/mcp", { origin: "https://evil.example" }, INITIALIZE)],
      [401, "UNAUTHORIZED", await send("POST", "/mcp", { authorization: "" }, INITIALIZE)],
      [401, "UNAUTHORIZED", await send("POST", "/mcp", { authorization: "Basic Z29vZA==" }, INITIALIZE)],
      [401, "UNAUTHORIZED", await send("POST", "/mcp", { authorization: "Bearer bad" }, INITIALIZE)],
    ];
    for (const [status, code, answer] of codes) {
      assert.equal(answer.status, status, answer.body);
      const problem = JSON.parse(answer.body) as { code: string; error: string; hint: string };
      assert.equal(problem.code, code);
      assert.ok(problem.error && problem.hint);
    }
    assert.deepEqual(errors, []);
  });

  it("survives requests outside the protocol", async () => {
    for (const body of ["", "nonsense", "[]", "null", '{"jsonrpc":"2.0"}', `"${"x".repeat(5_000_000)}"`]) {
      const { status } = await send("POST", "/mcp", {}, body);
      assert.ok(status >= 400 && status < 500, `${status} for ${body.slice(0, 20)}`);
    }
    assert.equal((await send("POST", "/mcp", { "content-type": "text/plain" }, INITIALIZE)).status, 415);
    assert.equal((await send("POST", "/mcp", {}, INITIALIZE)).status, 200);
  });

  it("says when the daemon is gone", async () => {
    isThere = false;
    const { status, body } = await send("POST", "/mcp", {}, INITIALIZE);
    isThere = true;
    assert.equal(status, 503);
    assert.match(body, /DAEMON_UNREACHABLE/);
  });
});
