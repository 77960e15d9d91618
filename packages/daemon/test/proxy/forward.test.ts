// Requests through the proxy: what server and client receive, with all kinds of server behaviour.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { open, readAll, settled } from "../helpers/serve.ts";
import { answering, httpServer, rawServer, serveGuests } from "./guest.ts";
import type { IncomingMessage } from "node:http";
import type { Proxied } from "./guest.ts";

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

test("every method, path, query and body arrives unchanged", async (t) => {
  const seen: string[] = [];
  const port = await httpServer(t, (asked, response) => {
    void readAll(asked).then((body) => {
      seen.push(`${asked.method} ${asked.url} ${asked.headers["content-type"] ?? ""} ${body}`.trim().replace(/  +/, " "));
      response.end();
    });
  });
  const { ask, get } = await serveGuests(t);
  for (const method of ["GET", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "QUERY"]) await get(port, "/a//%zz/../b?x=%&y", { method });
  for (const method of ["POST", "PUT", "PATCH", "PROPPATCH", "DELETE"])
    await get(port, "/up", { method, body: Buffer.from("body"), headers: { "content-length": "4", "content-type": "neither nor" } });
  await ask("/v1/stop?x", { method: "POST", body: Buffer.from("{}"), headers: { host: `${port}-sb-a.localhost` } });
  assert.deepEqual(seen, [
    ...["GET", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "QUERY"].map((method) => `${method} /a//%zz/../b?x=%&y`),
    ...["POST", "PUT", "PATCH", "PROPPATCH", "DELETE"].map((method) => `${method} /up neither nor body`),
    "POST /v1/stop?x {}",
  ]);
});

test("an answer is forwarded with its status, headers and body", async (t) => {
  const port = await httpServer(t, (_asked, response) => {
    response.writeHead(418, ["X-Many", "1", "X-Many", "2", "Content-Type", "text/teapot"]).end("short and stout");
  });
  const reply = await (await serveGuests(t)).get(port);
  assert.deepEqual(
    [reply.status, reply.text, reply.headers["x-many"], reply.headers["content-type"]],
    [418, "short and stout", "1, 2", "text/teapot"],
  );
  assert.match(String(reply.headers["x-request-id"]), /^[\w-]{36}$/);
});

test("answers without a body have none, and keep Content-Length", async (t) => {
  const port = await answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
  const { get } = await serveGuests(t);
  const head = await get(port, "/", { method: "HEAD" });
  assert.deepEqual([head.status, head.headers["content-length"], head.text], [200, "1234", ""]);
  for (const status of [204, 304]) {
    const reply = await get(await answering(t, `HTTP/1.1 ${status} X\r\nETag: "a"\r\n\r\n`));
    assert.deepEqual([reply.status, reply.headers.etag, reply.text], [status, '"a"', ""]);
  }
});

test("informational answers are not the answer", async (t) => {
  const port = await answering(t, `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${OK}`);
  const reply = await (await serveGuests(t)).get(port);
  assert.deepEqual([reply.status, reply.text], [200, "ok"]);
});

test("events are forwarded without delay, and the head before the first of them", async (t) => {
  const events = Promise.withResolvers<IncomingMessage>();
  let send: (text: string) => void = () => undefined;
  const port = await httpServer(t, (asked, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    send = (text) => response.write(text);
    events.resolve(asked);
  });
  const fixture = await serveGuests(t);
  const response = await open({ ...fixture.options({}), path: `/v1/sandboxes/sb-a/proxy/${port}/events` });
  assert.equal(response.headers["content-type"], "text/event-stream");
  for (const text of ["data: 1\n\n", "data: 2\n\n"]) {
    send(text);
    assert.equal(String((await once(response, "data"))[0]), text);
  }
  assert.equal(fixture.guests.uses, 1);
  response.destroy();
  await until(() => fixture.guests.uses === 0 && fixture.guests.live.size === 0);
});

test("a stream of events ends properly when the daemon stops", async (t) => {
  const port = await httpServer(
    t,
    (_asked, response) => void response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n"),
  );
  const fixture = await serveGuests(t);
  const response = await open({ ...fixture.options({}), path: `/v1/sandboxes/sb-a/proxy/${port}/` });
  fixture.stopping.abort();
  assert.equal(await readAll(response), "data: 1\n\n");
  assert.equal(response.complete, true);
});

test("neither side is sent more than it reads", async (t) => {
  let taken = 0;
  let resume: () => void = () => undefined;
  const port = await httpServer(t, (asked, response) => {
    resume = () => asked.on("data", (piece: Buffer) => (taken += piece.length)).once("end", () => response.end(String(taken)));
  });
  const fixture = await serveGuests(t);
  const upload = request({ ...fixture.options({}), method: "POST", path: `/v1/sandboxes/sb-a/proxy/${port}/` });
  const piece = Buffer.alloc(1024 * 1024);
  let sent = 0;
  while (upload.write(piece)) sent++;
  const total = 64;
  const rest = (async () => {
    for (; sent < total - 1; sent++) if (!upload.write(piece)) await once(upload, "drain");
    upload.end();
  })();
  await settled(() => sent);
  // the buffers of the kernel and of the streams in between
  assert.ok(sent < 32, `${sent} MiB were taken for a server that reads nothing`);
  resume();
  const [response] = (await once(upload, "response")) as [IncomingMessage];
  assert.equal(await readAll(response), String(total * piece.length));
  await rest;
});

test("connections are reused, also for requests that cannot be repeated", async (t) => {
  const port = await httpServer(t, (asked, response) => void asked.resume().once("end", () => response.end("ok")));
  const { get, guests } = await serveGuests(t);
  for (let i = 0; i < 5; i++) assert.equal((await get(port, `/${i}`)).text, "ok");
  for (let i = 0; i < 5; i++) assert.equal((await get(port, `/${i}`, { method: "POST", body: Buffer.from("x") })).text, "ok");
  assert.equal(guests.opened, 1);
});

test("a request on a connection that the server has closed is repeated once", async (t) => {
  let requests = 0;
  const port = await rawServer(t, (socket) => {
    let count = 0;
    socket.on("data", () => {
      requests++;
      // closes the connection at the second request without an answer
      if (++count === 2) socket.destroy();
      else socket.write(OK);
    });
  });
  const { get, guests } = await serveGuests(t);
  assert.equal((await get(port)).text, "ok");
  assert.equal((await get(port)).text, "ok");
  assert.deepEqual([requests, guests.opened], [3, 2]);
  assert.equal((await get(port)).text, "ok");
  const posted = await get(port, "/", { method: "POST" });
  assert.deepEqual([posted.status, posted.headers["x-forkd-error"], requests], [502, "BAD_GATEWAY", 5]);
});

for (const [what, bytes, code] of [
  ["garbage", "\x00\x01\x02 hello\r\n\r\n", "BAD_GATEWAY"],
  ["another protocol", "SSH-2.0-OpenSSH_9.2\r\n", "BAD_GATEWAY"],
  ["an invalid status", "HTTP/1.1 abc Nope\r\n\r\n", "BAD_GATEWAY"],
  ["nothing", "", "BAD_GATEWAY"],
  ["half a head", "HTTP/1.1 200 OK\r\nContent-Le", "BAD_GATEWAY"],
  [
    "headers without end",
    `HTTP/1.1 200 OK\r\n${"X-Flood: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(2000)}`,
    "BAD_GATEWAY",
  ],
  ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "BAD_GATEWAY"],
  ["a length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "BAD_GATEWAY"],
  ["an unrequested upgrade", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "BAD_GATEWAY"],
] as const) {
  test(`a server that answers with ${what} is ${code}`, async (t) => {
    const { get, guests } = await serveGuests(t);
    const reply = await get(await answering(t, bytes, { close: true }));
    assert.deepEqual([reply.status, reply.json()["code"], reply.headers["x-forkd-error"]], [502, code, code]);
    await until(() => guests.uses === 0 && guests.live.size === 0);
  });
}

for (const [what, bytes] of [
  ["closes before its end", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"],
  ["breaks off between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n"],
  ["sends invalid chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\nzz\r\n"],
] as const) {
  test(`an answer that ${what} is broken for the client too`, async (t) => {
    const { options, guests } = await serveGuests(t);
    const port = await answering(t, bytes, { close: true });
    // head, body and end may arrive in one piece or in several
    for (let i = 0; i < 20; i++) {
      const response = await open({ ...options({}), path: `/v1/sandboxes/sb-a/proxy/${port}/` });
      assert.equal(response.statusCode, 200);
      await assert.rejects(readAll(response));
    }
    await until(() => guests.uses === 0);
  });
}

test("bytes beyond Content-Length are not forwarded", async (t) => {
  const port = await answering(t, `${OK}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison`);
  const { get } = await serveGuests(t);
  for (let i = 0; i < 3; i++) assert.equal((await get(port)).text, "ok");
});

test("a server that never answers is GATEWAY_TIMEOUT, a slow one is not", async (t) => {
  const { get, guests, options } = await serveGuests(t, { limits: { serverMs: 100 } });
  const silent = await rawServer(t, () => undefined);
  let end: () => void = () => undefined;
  const slow = await httpServer(t, (_asked, response) => {
    response.flushHeaders();
    end = () => void response.end("late");
  });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let isOver = false;
  const asked = get(silent).finally(() => (isOver = true));
  await until(() => {
    // The proxy's timer starts only when it has sent the request.
    t.mock.timers.tick(100);
    return isOver;
  });
  const never = await asked;
  assert.deepEqual([never.status, never.json()["code"]], [504, "GATEWAY_TIMEOUT"]);
  const response = await open({ ...options({}), path: `/v1/sandboxes/sb-a/proxy/${slow}/` });
  t.mock.timers.tick(300);
  end();
  assert.equal(await readAll(response), "late");
  t.mock.timers.reset();
  await until(() => guests.live.size <= 1);
});

test("closed port, missing sandbox, invalid port", async (t) => {
  const { ask, get } = await serveGuests(t);
  const closed = await get(1);
  assert.deepEqual([closed.status, closed.json()["code"], closed.headers["x-forkd-error"]], [502, "PORT_CLOSED", "PORT_CLOSED"]);
  assert.equal((await ask("/v1/sandboxes/sb-x/proxy/80/")).status, 404);
  assert.equal((await ask("/", { headers: { host: "80-sb-x.localhost" } })).status, 404);
  for (const port of ["0", "70000", "x"]) assert.equal((await ask(`/v1/sandboxes/sb-a/proxy/${port}/`)).status, 400, port);
  assert.equal((await ask("/", { headers: { host: "70000-sb-a.localhost" } })).status, 400);
});

test("a browser gets an error page, without any text of the guest", async (t) => {
  const { ask } = await serveGuests(t);
  const reply = await ask("/<script>", { headers: { host: "1-sb-a.localhost", accept: "text/html" } });
  assert.equal(reply.status, 502);
  assert.match(String(reply.headers["content-type"]), /^text\/html/);
  assert.match(String(reply.headers["content-security-policy"]), /default-src 'none'/);
  assert.match(reply.text, /port 1 of the guest.*PORT_CLOSED/s);
  assert.match(reply.text, /http-equiv="refresh"/);
  assert.doesNotMatch(reply.text, /<script/);
});

test("a client that disconnects cancels its request", async (t) => {
  const fixture = await serveGuests(t);
  const port = await rawServer(t, () => undefined);
  const asked = request({ ...fixture.options({}), path: `/v1/sandboxes/sb-a/proxy/${port}/` });
  asked.on("error", () => undefined);
  asked.end();
  await until(() => fixture.guests.live.size === 1);
  asked.destroy();
  await until(() => fixture.guests.live.size === 0 && fixture.guests.uses === 0);
});

test("requests are counted and logged by their route, without the guest's path", async (t) => {
  const port = await httpServer(t, (_asked, response) => void response.end());
  const fixture: Proxied = await serveGuests(t);
  await fixture.get(port, "/secret-path?secret=query");
  await fixture.ask("/secret-path?forkd_preview=fkp_secret", { headers: { host: `${port}-sb-a.localhost` } });
  await until(() => fixture.services.inFlight.count === 0);
  assert.match(
    await fixture.services.metrics.text(),
    /forkd_http_requests_total\{route="\/v1\/sandboxes\/:id\/proxy\/:port\/\*",method="GET",status="200"\} 2/,
  );
  await fixture.services.audit?.flush();
  const audit = await readFile(`${fixture.dir}/audit.log`, "utf8");
  assert.equal(audit.match(new RegExp(`"path":"/v1/sandboxes/sb-a/proxy/${port}","sandbox":"sb-a"`, "g"))?.length, 2);
  assert.doesNotMatch(audit + fixture.logged(), /secret/);
});

for (const [what, bytes] of [
  ["in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n"],
  ["of a length", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly"],
  ["up to its end", "HTTP/1.1 200 OK\r\n\r\nonly"],
] as const) {
  test(`an answer ${what} whose connection is reset is broken for the client too`, async (t) => {
    const { options, guests } = await serveGuests(t);
    const port = await answering(t, bytes);
    const response = await open({ ...options({}), path: `/v1/sandboxes/sb-a/proxy/${port}/` });
    assert.equal(String((await once(response, "data"))[0]), "only");
    for (const socket of guests.live) socket.destroy(new Error("reset"));
    await assert.rejects(readAll(response));
    await until(() => guests.uses === 0);
  });
}

test("a server that closes right after its answer is no error", async (t) => {
  const { guests, services, options } = await serveGuests(t);
  // both in one turn of the event loop, before the proxy has begun to read
  guests.connect = async () =>
    new Duplex({
      read: () => undefined,
      write(_piece, _encoding, done) {
        this.push("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        this.push(null);
        done();
      },
    });
  for (let i = 0; i < 20; i++) {
    const response = await open({ ...options({}), path: "/v1/sandboxes/sb-a/proxy/80/" }).catch(
      (error: NodeJS.ErrnoException) => error.code,
    );
    if (typeof response === "object") await assert.rejects(readAll(response));
    else assert.equal(response, "ECONNRESET");
  }
  await until(() => guests.uses === 0 && services.inFlight.count === 0);
});
