// Clients that are slow, disconnect early or close one direction.

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { open, serve } from "../helpers/serve.ts";
import type { Socket } from "node:net";
import type { Caller } from "../../src/service/caller.ts";

async function raw(path: string, text: string): Promise<Socket> {
  const socket = connect({ path, allowHalfOpen: true });
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

async function allOf(socket: Socket): Promise<string> {
  let text = "";
  for await (const piece of socket) text += String(piece);
  return text;
}

function hangingExec(): { manager: ReturnType<typeof fakeManager>; begun: Promise<Caller> } {
  const begun = Promise.withResolvers<Caller>();
  const manager = fakeManager({
    execution: {
      exec: async (_id, _request, caller) => {
        begun.resolve(caller);
        await once(caller.signal, "abort");
        throw caller.signal.reason as Error;
      },
    },
  });
  return { manager, begun: begun.promise };
}

test("a request is cancelled when its client disconnects", async (t) => {
  const { manager, begun } = hangingExec();
  const fixture = await serve(t, { manager });
  const controller = new AbortController();
  const options = fixture.options({ method: "POST", body: {} });
  const asked = open({ ...options, path: "/v1/sandboxes/a/exec", signal: controller.signal }, { args: ["x"] });
  const { signal } = await begun;
  controller.abort();
  await assert.rejects(asked);
  if (!signal.aborted) await once(signal, "abort");
  assert.equal(await fixture.services.inFlight.idle(patience()), true);
});

test("a request with an idempotency key continues without its client", async (t) => {
  const begun = Promise.withResolvers<Caller>();
  const end = Promise.withResolvers<void>();
  const manager = fakeManager({
    execution: {
      ping: async () => ({ pong: true, ms: 1, kernels: [] }),
      exec: async (_id, _request, caller) => {
        begun.resolve(caller);
        await end.promise;
        return { stdout: "done" } as never;
      },
    },
  });
  const fixture = await serve(t, { manager });
  const controller = new AbortController();
  const ask = { method: "POST", body: { args: ["x"] }, headers: { "idempotency-key": "k" } };
  const asked = open({ ...fixture.options(ask), path: "/v1/sandboxes/a/exec", signal: controller.signal }, ask.body);
  const { signal } = await begun.promise;
  controller.abort();
  await assert.rejects(asked);
  await fixture.ask("/v1/sandboxes/a/ping", { method: "POST" });
  assert.equal(signal.aborted, false);
  end.resolve();
  const again = await fixture.ask("/v1/sandboxes/a/exec", ask);
  assert.deepEqual(again.json(), { stdout: "done" });
  assert.equal(again.headers["idempotent-replayed"], "true");
});

test("a client that closed its sending side still gets its answer", async (t) => {
  const fixture = await serve(t, { manager: fakeManager({ sandboxes: { get: sandboxInfo } }) });
  const socket = await raw(fixture.socket, "GET /v1/sandboxes/a HTTP/1.1\r\nHost: x\r\n\r\n");
  socket.end();
  assert.match(await allOf(socket), /^HTTP\/1.1 200 OK[^]*"id":"a"/);
});

test("long work of a client that closed its sending side is cancelled, and its answer says so", async (t) => {
  const { manager, begun } = hangingExec();
  const fixture = await serve(t, { manager });
  const body = JSON.stringify({ args: ["x"] });
  const head = `POST /v1/sandboxes/a/exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  const socket = await raw(fixture.socket, head + body);
  await begun;
  socket.end();
  assert.match(await allOf(socket), /^HTTP\/1.1 499 [^]*"CANCELLED"/);
});

test("headers that do not arrive time out", async (t) => {
  const fixture = await serve(t, { limits: { headersMs: 50 } });
  const socket = await raw(fixture.socket, "GET /healthz HTTP/1.1\r\nHost:");
  assert.match(await allOf(socket), /^HTTP\/1.1 408 [^]*REQUEST_TIMEOUT/);
});

test("a body that does not arrive times out", async (t) => {
  const fixture = await serve(t, { limits: { bodyMs: 50, lingerMs: 50 } });
  const head = "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
  const socket = await raw(fixture.socket, head);
  assert.match(await allOf(socket), /^HTTP\/1.1 408 [^]*REQUEST_TIMEOUT/);
});

test("an upload that stops times out", async (t) => {
  const failed = Promise.withResolvers<unknown>();
  const manager = fakeManager({
    files: {
      write: async (_id, _query, content) => {
        try {
          for await (const _ of content);
        } catch (error) {
          failed.resolve(error);
          throw error;
        }
        return { bytes: 0, isOwned: true };
      },
    },
  });
  const fixture = await serve(t, { manager, limits: { uploadIdleMs: 50, lingerMs: 50 } });
  const socket = await raw(fixture.socket, "PUT /v1/sandboxes/a/files?path=/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
  assert.match(await allOf(socket), /^HTTP\/1.1 408 [^]*REQUEST_TIMEOUT/);
  assert.equal(((await failed.promise) as { code: string }).code, "REQUEST_TIMEOUT");
});

test("an upload whose client disconnects fails, and does not become a short file", async (t) => {
  const failed = Promise.withResolvers<unknown>();
  const manager = fakeManager({
    files: {
      write: async (_id, _query, content) => {
        const wrong = await Array.fromAsync(content).then(
          () => new Error("the upload looked complete"),
          () => null,
        );
        failed.resolve(wrong);
        throw wrong ?? new Error("incomplete");
      },
    },
  });
  const fixture = await serve(t, { manager });
  const socket = await raw(
    fixture.socket,
    "PUT /v1/sandboxes/a/files?path=/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
  );
  socket.destroy();
  assert.equal(await failed.promise, null);
});

test("bytes that are not HTTP are refused", async (t) => {
  const fixture = await serve(t);
  const socket = await raw(fixture.socket, "hello\r\n\r\n");
  assert.match(await allOf(socket), /^HTTP\/1.1 400 [^]*BAD_REQUEST/);
});

test("several requests on one connection are answered in order", async (t) => {
  const fixture = await serve(t, { manager: fakeManager({ sandboxes: { get: sandboxInfo } }) });
  const get = (id: string, more = ""): string => `GET /v1/sandboxes/${id} HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
  const socket = await raw(fixture.socket, get("a") + get("b") + get("c", "Connection: close\r\n"));
  const ids = [...(await allOf(socket)).matchAll(/"id":"(\w)"/g)].map(([, id]) => id);
  assert.deepEqual(ids, ["a", "b", "c"]);
});

test("an answer before the end of an upload reaches the client", async (t) => {
  const fixture = await serve(t, { limits: { lingerMs: 200 } });
  const socket = await raw(fixture.socket, "PUT /v1/sandboxes/a/files?path=/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
  socket.write(Buffer.alloc(500_000));
  let text = "";
  while (!text.includes("NOT_FOUND")) text += String((await once(socket, "data"))[0]);
  assert.match(text, /^HTTP\/1.1 404 /);
  socket.destroy();
});
