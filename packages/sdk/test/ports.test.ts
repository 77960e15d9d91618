// Requests and TCP connections to servers inside a sandbox.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { Controller, Sandbox } from "../src/index.ts";
import { problem } from "./helpers/fake-daemon.ts";
import type { AddressInfo, Socket } from "node:net";
import type { ServerResponse } from "node:http";

type Way = { name: string; controller: Controller };

let folder: string;
let ways: Way[] = [];
let seen: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[] = [];
let answer: (request: IncomingMessage, response: ServerResponse) => void = (_request, response) => void response.end("from the guest");
const servers = [0, 1].map(() =>
  createServer((request, response) => {
    void text(request).then((body) => {
      seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body });
      answer(request, response);
    });
  }).on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
    seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body: "" });
    if (request.url?.includes("/9999/") === true) {
      const body = JSON.stringify({ error: "Cannot connect: no.", code: "PORT_CLOSED", hint: "Do.", request_id: "r" });
      socket.end(`HTTP/1.1 502 Bad Gateway\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`);
      return;
    }
    // sent in one packet with the answer: no byte may be lost
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nhello ");
    socket.write(head);
    socket.pipe(socket);
  }),
);

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  const socket = join(folder, "forkd.sock");
  const [unix = assert.fail(), tcp = assert.fail()] = servers;
  await once(unix.listen(socket), "listening");
  await once(tcp.listen(0, "127.0.0.1"), "listening");
  const { port } = tcp.address() as AddressInfo;
  ways = [
    { name: "socket", controller: new Controller({ socket, token: "tok-123" }) },
    { name: "url", controller: new Controller({ url: `http://127.0.0.1:${port}`, token: "tok-123" }) },
  ];
});

after(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  await rm(folder, { recursive: true });
});

/** The same over both transports */
function each(what: string, run: (controller: Controller) => Promise<void>): void {
  for (const at of [0, 1]) {
    test(`${what}, over ${at === 0 ? "a socket" : "TCP"}`, async () => {
      seen = [];
      await run(ways[at]?.controller ?? assert.fail());
    });
  }
}

each("a request has its method, headers and body, and the token beside the server's own Authorization", async (controller) => {
  answer = (_request, response) => {
    response.writeHead(418, { "x-answer": "yes", "set-cookie": ["a=1", "b=2"] });
    response.end("short and stout");
  };
  const init = { method: "PUT", headers: { authorization: "Basic app", "x-own": "1" }, body: "tea" };
  const response = await controller.fetchPort("sb-1", 8000, "/pot?size=2#handle", init);
  assert.deepEqual([response.status, await response.text()], [418, "short and stout"]);
  assert.equal(response.headers.get("x-answer"), "yes");
  assert.deepEqual(response.headers.getSetCookie(), ["a=1", "b=2"]);
  const [{ method, url, headers, body } = assert.fail()] = seen;
  assert.deepEqual([method, url, body], ["PUT", "/v1/sandboxes/sb-1/proxy/8000/pot?size=2", "tea"]);
  assert.deepEqual([headers.authorization, headers["x-forkd-token"], headers["x-own"]], ["Basic app", "tok-123", "1"]);
  assert.equal(headers["content-length"], "3");
});

each("bodies are streamed in both directions", async (controller) => {
  answer = (_request, response) => {
    response.write("one ");
    setImmediate(() => response.end("two"));
  };
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield new TextEncoder().encode("a");
    yield new TextEncoder().encode("b");
  }
  const response = await controller.fetchPort("sb-1", 8000, "upload", { method: "POST", body: chunks() });
  const parts = await Array.fromAsync(response.body as unknown as AsyncIterable<Uint8Array>);
  assert.equal(Buffer.concat(parts).toString(), "one two");
  assert.deepEqual([seen[0]?.body, seen[0]?.headers["transfer-encoding"]], ["ab", "chunked"]);
});

each("a path cannot leave the server", async (controller) => {
  answer = (_request, response) => void response.end();
  for (const path of ["/../../../../stop", "..%2f../x", "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/stop", "//evil.example/x"])
    await (await controller.fetchPort("sb-1", 8000, path)).text();
  for (const { url } of seen) assert.match(url, /^\/v1\/sandboxes\/sb-1\/proxy\/8000\//);
});

each("an error answer of the daemon is an error, one of a server is not", async (controller) => {
  answer = (_request, response) => {
    response.setHeader("x-forkd-error", "PORT_CLOSED");
    problem(response, 502, { code: "PORT_CLOSED", error: "Cannot connect: nothing listens." });
  };
  await assert.rejects(controller.fetchPort("sb-1", 8000, "/"), { code: "PORT_CLOSED", status: 502, requestId: "req-1" });
  answer = (_request, response) =>
    void problem(response, 502, { code: "PORT_CLOSED", error: "a server that forges the daemon's error header" });
  assert.equal((await controller.fetchPort("sb-1", 8000, "/")).status, 502);
});

each("a redirect is an answer", async (controller) => {
  answer = (_request, response) => void response.writeHead(302, { location: "/v1/sandboxes/sb-1/proxy/8000/login" }).end();
  const response = await controller.fetchPort("sb-1", 8000, "/");
  assert.deepEqual([response.status, seen.length], [302, 1]);
  assert.equal(response.headers.get("location"), "/v1/sandboxes/sb-1/proxy/8000/login");
});

each("an answer without a body", async (controller) => {
  answer = (request, response) => void response.writeHead(request.method === "HEAD" ? 200 : 204, { "x-a": "b" }).end();
  for (const [method, status] of [
    ["HEAD", 200],
    ["GET", 204],
  ] as const) {
    const response = await controller.fetchPort("sb-1", 8000, "/", { method });
    assert.deepEqual([response.status, response.headers.get("x-a"), await response.text()], [status, "b", ""]);
  }
});

each("an abort ends it with its reason", async (controller) => {
  const reason = new Error("enough");
  await assert.rejects(controller.fetchPort("sb-1", 8000, "/", { signal: AbortSignal.abort(reason) }), reason);
  const late = new AbortController();
  answer = () => late.abort(reason);
  await assert.rejects(controller.fetchPort("sb-1", 8000, "/", { signal: late.signal }), reason);
});

each("a connection carries bytes both ways, and the end of each direction", async (controller) => {
  const connection = await controller.connectPort("sb-1", 22);
  connection.write("and ");
  setImmediate(() => connection.end("goodbye"));
  assert.equal((await buffer(connection)).toString(), "hello and goodbye");
  const [{ url, headers } = assert.fail()] = seen;
  assert.equal(url, "/v1/sandboxes/sb-1/ports/22/connect");
  assert.deepEqual([headers.upgrade, headers.authorization], ["tcp", "Bearer tok-123"]);
});

each("a refused connection has the reason", async (controller) => {
  await assert.rejects(controller.connectPort("sb-1", 9999), { code: "PORT_CLOSED", status: 502 });
});

test("no daemon is DAEMON_UNREACHABLE, for requests and connections", async () => {
  const controller = new Controller({ socket: join(folder, "nobody.sock") });
  await assert.rejects(controller.fetchPort("sb-1", 8000, "/"), { code: "DAEMON_UNREACHABLE" });
  await assert.rejects(controller.connectPort("sb-1", 8000), { code: "DAEMON_UNREACHABLE" });
});

test("the address of a server, where it has one", async () => {
  const at = (proxyUrl: string | null): Sandbox => {
    const controller = { status: async () => ({ proxy_url: proxyUrl }) } as unknown as Controller;
    return new Sandbox(controller, { id: "sb-1" } as never);
  };
  assert.equal(await at("http://localhost:8889").ports.url(3000), "http://3000-sb-1.localhost:8889/");
  assert.equal(await at("https://preview.example.org").ports.url(80), "https://80-sb-1.preview.example.org/");
  await assert.rejects(at(null).ports.url(80), { code: "NO_TCP", name: "ConflictError" });
});
