// Upgraded connections: WebSockets and other protocols through the proxy, and raw TCP.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { request as httpsRequest } from "node:https";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { readAll, tempDir } from "../helpers/serve.ts";
import { answering, rawServer, serveGuests, type Proxied } from "./guest.ts";
import type { IncomingMessage, RequestOptions } from "node:http";
import type { Socket } from "node:net";
import type { Tls } from "../../src/dispatch/listener.ts";
import type { Ask } from "../helpers/serve.ts";

type Opened = { response: IncomingMessage; socket: Socket };

/** Rejects with the response if the connection was not upgraded */
async function upgrade(options: RequestOptions, path: string, name = "websocket", isTls = false): Promise<Opened> {
  const headers = { ...(options.headers as Record<string, string>), connection: "Upgrade", upgrade: name };
  const all = { ...options, path, headers, allowHalfOpen: true, rejectUnauthorized: false };
  const asked = (isTls ? httpsRequest : request)(all);
  return new Promise((resolve, reject) => {
    asked.once("error", reject);
    asked.once("response", reject);
    asked.once("upgrade", (response: IncomingMessage, socket: Socket, head: Buffer) => {
      if (head.length > 0) socket.unshift(head);
      resolve({ response, socket });
    });
    asked.end();
  });
}

async function refusal(opened: Promise<Opened>): Promise<{ status: number; code: unknown }> {
  const response = await opened.then(
    () => assert.fail("the connection was upgraded"),
    (error: unknown) => error as IncomingMessage,
  );
  const { code } = JSON.parse(await readAll(response)) as { code: unknown };
  return { status: response.statusCode ?? 0, code };
}

/** Accepts every upgrade, sends the path, and then echoes its input */
function echoServer(socket: Socket): void {
  let head = "";
  const read = (piece: Buffer): void => {
    head += piece.toString("latin1");
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    socket.off("data", read);
    const lines = head.slice(0, end).split("\r\n");
    const extra = "Sec-WebSocket-Accept: abc\r\nSet-Cookie: forkd_preview=x\r\n";
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${extra}\r\n${lines.join("|")}\n`);
    socket.write(head.slice(end + 4), "latin1");
    socket.pipe(socket);
  };
  socket.on("data", read);
}

const byPath = (port: number, rest = "/"): string => `/v1/sandboxes/sb-a/proxy/${port}${rest}`;
const connectTo = (port: number): string => `/v1/sandboxes/sb-a/ports/${port}/connect`;

test("an upgrade is forwarded with its headers, then every byte both ways", async (t) => {
  const fixture = await serveGuests(t);
  const port = await rawServer(t, echoServer);
  const bytes = Buffer.from(Array.from({ length: 200_000 }, (_, i) => i % 256));
  for (const [options, path] of [
    [fixture.options({ headers: { "sec-websocket-key": "k" } }), byPath(port, "/chat?x=1")],
    [fixture.options({ headers: { host: `${port}-sb-a.localhost`, "sec-websocket-key": "k" } }), "/chat?x=1"],
  ] as const) {
    const { response, socket } = await upgrade(options, path);
    assert.deepEqual([response.statusCode, response.headers["sec-websocket-accept"]], [101, "abc"]);
    assert.equal(response.headers["set-cookie"], undefined);
    socket.end(bytes);
    const [head = "", ...rest] = (await buffer(socket)).toString("latin1").split("\n");
    assert.match(head, /^GET \/chat\?x=1 HTTP\/1\.1\|.*sec-websocket-key: k.*Connection: Upgrade\|Upgrade: websocket/i);
    assert.ok(Buffer.from(rest.join("\n"), "latin1").equals(bytes));
    assert.equal(fixture.guests.uses <= 1, true);
  }
  await until(() => fixture.guests.uses === 0 && fixture.guests.live.size === 0);
});

test("an answer of a server that does not upgrade is forwarded", async (t) => {
  const fixture = await serveGuests(t);
  const port = await answering(t, 'HTTP/1.1 426 No\r\nContent-Length: 12\r\nX-A: b\r\n\r\n{"code":"no"}'.replace("12", "13"));
  assert.deepEqual(await refusal(upgrade(fixture.options({}), byPath(port))), { status: 426, code: "no" });
});

test("a refusal is an HTTP answer", async (t) => {
  const fixture = await serveGuests(t);
  assert.deepEqual(await refusal(upgrade(fixture.options({}), byPath(1))), { status: 502, code: "PORT_CLOSED" });
  assert.deepEqual(await refusal(upgrade(fixture.options({}), "/v1/sandboxes/sb-x/proxy/1/")), { status: 404, code: "NOT_FOUND" });
  assert.deepEqual(await refusal(upgrade(fixture.options({ tcp: true }), byPath(1))), { status: 401, code: "UNAUTHORIZED" });
  const garbage = await answering(t, "what?\r\n\r\n", { close: true });
  assert.deepEqual(await refusal(upgrade(fixture.options({}), byPath(garbage))), { status: 502, code: "BAD_GATEWAY" });
  await until(() => fixture.guests.uses === 0);
});

test("by cookie, a WebSocket is accepted only from pages of the same sandbox", async (t) => {
  const fixture = await serveGuests(t);
  const port = await rawServer(t, echoServer);
  const { token } = fixture.services.previews.create({ sandbox: "sb-a", port, expiresInSecs: 60, principal: "local" });
  const host = `${port}-sb-a.localhost:8889`;
  const visit = (headers: Record<string, string>): Promise<Opened> =>
    upgrade(fixture.options({ tcp: true, headers: { host, cookie: `a=1; forkd_preview=${token}`, ...headers } }), "/");
  const { socket } = await visit({ origin: `http://${host}` });
  socket.end();
  assert.doesNotMatch((await buffer(socket)).toString(), /fkp_/);
  for (const origin of ["https://evil.example", `http://${port}-sb-b.localhost:8889`, "null"])
    assert.deepEqual(await refusal(visit({ origin })), { status: 403, code: "FORBIDDEN" }, origin);
  assert.deepEqual(await refusal(visit({ cookie: "" })), { status: 401, code: "UNAUTHORIZED" });
});

test("a broken connection of one side closes the other", async (t) => {
  const fixture = await serveGuests(t);
  const sockets: Socket[] = [];
  const port = await rawServer(t, (socket) => {
    sockets.push(socket);
    echoServer(socket);
  });
  const { token } = fixture.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const first = await upgrade(fixture.options({ tcp: true, token }), byPath(port));
  const received = buffer(first.socket);
  sockets[0]?.resetAndDestroy();
  await assert.rejects(received, { code: "ECONNRESET" });
  const second = await upgrade(fixture.options({}), byPath(port));
  second.socket.on("error", () => undefined).destroy();
  await until(() => fixture.guests.live.size === 0 && fixture.guests.uses === 0);
});

test("they end with the daemon, and with their token", async (t) => {
  const fixture = await serveGuests(t);
  const port = await rawServer(t, echoServer);
  const { token } = fixture.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const revoked = await upgrade(fixture.options({ tcp: true, token }), byPath(port));
  const received = buffer(revoked.socket);
  fixture.services.inFlight.abortOf("ci", new ForkdError("UNAUTHORIZED", "Revoked."));
  await assert.rejects(received, { code: "ECONNRESET" });
  const stopped = await upgrade(fixture.options({}), byPath(port));
  fixture.stopping.abort();
  await buffer(stopped.socket);
  stopped.socket.end();
  assert.ok(await fixture.services.inFlight.idle(patience()));
  assert.deepEqual([fixture.guests.uses, fixture.guests.live.size], [0, 0]);
});

async function certificate(dir: string): Promise<Tls | string> {
  try {
    const files = ["-keyout", join(dir, "key.pem"), "-out", join(dir, "cert.pem")];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", ...files], {
      stdio: "ignore",
    });
    return { cert: await readFile(join(dir, "cert.pem")), key: await readFile(join(dir, "key.pem")) };
  } catch (error) {
    return `no certificate could be made: ${String(error)}`;
  }
}

for (const way of ["the socket", "TCP", "TLS"] as const) {
  test(`a bare connection over ${way}: bytes both ways, and each direction closes separately`, async (t) => {
    const tls = way === "TLS" ? await certificate(await tempDir(t)) : undefined;
    if (typeof tls === "string") {
      t.skip(tls);
      return;
    }
    const fixture: Proxied = await serveGuests(t, tls ? { tls } : {});
    const { token } = fixture.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
    const ask: Ask = way === "the socket" ? {} : { tcp: true, token };
    // answers with a byte count after the client's end, which needs a half-open connection
    const port = await rawServer(t, (socket) => {
      let count = 0;
      socket.on("data", (piece: Buffer) => (count += piece.length)).once("end", () => socket.end(`${count} bytes`));
    });
    const { response, socket } = await upgrade(fixture.options(ask), connectTo(port), "tcp", way === "TLS");
    assert.deepEqual([response.statusCode, response.headers.upgrade], [101, "tcp"]);
    socket.end(Buffer.alloc(1_000_000));
    assert.equal((await buffer(socket)).toString(), "1000000 bytes");
    await until(() => fixture.guests.uses === 0 && fixture.guests.live.size === 0);
  });
}

test("a bare connection accepts only Upgrade: tcp", async (t) => {
  const fixture = await serveGuests(t);
  assert.deepEqual(await refusal(upgrade(fixture.options({}), connectTo(80))), { status: 426, code: "UPGRADE_REQUIRED" });
  assert.equal((await fixture.ask(connectTo(80))).status, 426);
  assert.deepEqual(await refusal(upgrade(fixture.options({}), connectTo(1), "tcp")), { status: 502, code: "PORT_CLOSED" });
});
