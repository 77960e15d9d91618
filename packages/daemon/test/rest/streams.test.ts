// Streamed responses: events, progress, logs, files.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { request } from "node:http";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { FakeEvents, fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { open, readAll, serve, settled } from "../helpers/serve.ts";
import type { IncomingMessage } from "node:http";
import type { Fixture } from "../helpers/serve.ts";

const LINES = { accept: "application/x-ndjson" };

/** Reads until the text has arrived */
async function read(response: IncomingMessage, wanted: RegExp): Promise<string> {
  let text = "";
  while (!wanted.test(text)) {
    const piece = response.read() as Buffer | null;
    if (piece === null) await once(response, "readable");
    else text += piece.toString();
  }
  return text;
}

function listen(fixture: Fixture, query = "", headers: Record<string, string> = {}): Promise<IncomingMessage> {
  return open({ ...fixture.options({ headers }), path: `/v1/events${query}` });
}

const idsIn = (text: string): number[] => [...text.matchAll(/^id: (\d+)\nevent:/gm)].map(([, id]) => Number(id));

test("events begin after Last-Event-ID, and continue as they happen", async (t) => {
  const events = new FakeEvents();
  const fixture = await serve(t, { manager: fakeManager({ events }) });
  for (let i = 0; i < 1200; i++) events.add({ type: "sandbox.created", sandbox: `s${i}` });
  const response = await listen(fixture, "", { "last-event-id": "3" });
  assert.equal(response.headers["content-type"], "text/event-stream");
  const missed = await read(response, /^id: 1200$[^]*\n\n$/m);
  assert.deepEqual(
    idsIn(missed),
    Array.from({ length: 1197 }, (_, i) => i + 4),
  );
  events.add({ type: "sandbox.deleted", sandbox: "s1", reason: "bye" });
  const live = await read(response, /^id: 1201$[^]*\n\n$/m);
  assert.match(live, /^event: sandbox.deleted$/m);
  assert.match(live, /^data: \{.*"reason":"bye".*\}$/m);
  response.destroy();
});

test("without Last-Event-ID only new events are sent, filtered by type and sandbox", async (t) => {
  const events = new FakeEvents();
  const fixture = await serve(t, { manager: fakeManager({ events }) });
  events.add({ type: "sandbox.created", sandbox: "a" });
  const response = await listen(fixture, "?types=sandbox.deleted,sandbox.lost&sandbox=a");
  events.add({ type: "sandbox.deleted", sandbox: "b" });
  events.add({ type: "sandbox.paused", sandbox: "a" });
  events.add({ type: "sandbox.deleted", sandbox: "a" });
  assert.deepEqual(idsIn(await read(response, /^id: 4$/m)), [4]);
  response.destroy();
  await until(() => events.listeners === 0);
});

test("a stream of events has keep-alives and ends when the daemon stops", async (t) => {
  const fixture = await serve(t, { limits: { heartbeatMs: 10 } });
  const response = await listen(fixture, "?since=0");
  await read(response, /^: .+$/m);
  fixture.stopping.abort();
  await readAll(response);
  assert.equal(response.complete, true);
});

test("a client that does not read its events is dropped", async (t) => {
  const events = new FakeEvents();
  const fixture = await serve(t, { manager: fakeManager({ events }), limits: { heartbeatMs: 10 } });
  const response = await listen(fixture);
  response.pause();
  const metadata = { text: "x".repeat(1000) };
  await until(() => {
    for (let i = 0; i < 500; i++) events.add({ type: "sandbox.updated", metadata });
    return events.listeners === 0;
  });
  response.destroy();
});

test("progress is sent line by line before the result", async (t) => {
  const manager = fakeManager({
    images: {
      create: async (_request, caller) => {
        caller.progress?.({ step: "download", done: 1, total: 2, unit: "bytes" });
        caller.progress?.({ step: "unpack" });
        return { id: "im" } as never;
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/images", { body: { reference: "a/b" }, headers: LINES });
  assert.equal(reply.status, 200);
  assert.equal(reply.headers["content-type"], "application/x-ndjson");
  assert.deepEqual(
    reply.text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
    [
      { progress: { step: "download", done: 1, total: 2, unit: "bytes" } },
      { progress: { step: "unpack" } },
      { result: { id: "im" }, status: 201 },
    ],
  );
  const plain = await fixture.ask("/v1/images", { body: { reference: "a/b" } });
  assert.equal(plain.status, 201);
  assert.deepEqual(plain.json(), { id: "im" });
});

test("a failure before any progress is an ordinary answer, a later one is the last line", async (t) => {
  let isLate = false;
  const manager = fakeManager({
    snapshots: {
      create: async (_request, caller) => {
        if (isLate) caller.progress?.({ step: "boot" });
        throw new ForkdError("BOOT_FAILED", "Cannot boot: no.");
      },
    },
  });
  const fixture = await serve(t, { manager });
  const ask = { body: { tag: "a" }, headers: LINES };
  const early = await fixture.ask("/v1/snapshots", ask);
  assert.equal(early.status, 500);
  assert.equal(early.json()["code"], "BOOT_FAILED");
  isLate = true;
  const late = await fixture.ask("/v1/snapshots", ask);
  assert.equal(late.status, 200);
  const last = JSON.parse(late.text.trim().split("\n").at(-1) ?? "") as { error: { code: string; request_id: string } };
  assert.equal(last.error.code, "BOOT_FAILED");
  assert.equal(last.error.request_id, late.headers["x-request-id"]);
});

test("logs are text, and followed ones begin at once and end with the daemon", async (t) => {
  const manager = fakeManager({
    sandboxes: { get: sandboxInfo },
    execution: {
      async *logs(_id, query, { signal }) {
        if (query.follow) await once(signal, "abort");
        yield "line\n";
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/logs?tail=3");
  assert.equal(reply.text, "line\n");
  assert.match(String(reply.headers["content-type"]), /^text\/plain/);
  const response = await open({ ...fixture.options({}), path: "/v1/sandboxes/a/logs?follow" });
  assert.equal(response.statusCode, 200);
  fixture.stopping.abort();
  assert.equal(await readAll(response), "line\n");
});

test("logs that cannot be opened are an error, not an empty text", async (t) => {
  const manager = fakeManager({
    sandboxes: { get: sandboxInfo },
    execution: {
      // eslint-disable-next-line require-yield -- it fails before its first line
      async *logs() {
        throw new ForkdError("SANDBOX_LOST", "Cannot read the log: gone.");
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/logs");
  assert.equal(reply.status, 410);
  assert.equal(reply.json()["code"], "SANDBOX_LOST");
});

test("a download is paced by its reader", async (t) => {
  let made = 0;
  const total = 800;
  const manager = fakeManager({
    files: {
      read: async () =>
        (async function* () {
          for (; made < total; made++) yield Buffer.alloc(64 * 1024, made & 255);
        })(),
    },
  });
  const fixture = await serve(t, { manager });
  const response = await open({ ...fixture.options({}), path: "/v1/sandboxes/a/files?path=/x" });
  await once(response, "readable");
  await settled(() => made);
  assert.ok(made < total / 4, `${made} pieces were made for a reader that took none`);
  let bytes = 0;
  for await (const piece of response) bytes += (piece as Buffer).length;
  assert.equal(bytes, total * 64 * 1024);
});

test("a download that cannot start is an error; one that breaks is cut off visibly", async (t) => {
  let isOpen = false;
  const manager = fakeManager({
    files: {
      read: async () => {
        if (!isOpen) throw new ForkdError("FILE_FAILED", "Cannot open /x: no such file.");
        return (async function* () {
          yield Buffer.alloc(100_000);
          throw new ForkdError("AGENT_LOST", "gone");
        })();
      },
    },
  });
  const fixture = await serve(t, { manager });
  const refused = await fixture.ask("/v1/sandboxes/a/files?path=/x");
  assert.equal(refused.status, 422);
  assert.equal(refused.json()["code"], "FILE_FAILED");
  isOpen = true;
  await assert.rejects(fixture.ask("/v1/sandboxes/a/files?path=/x"));
});

test("a download whose reader disconnects ends its source", async (t) => {
  const ended = Promise.withResolvers<void>();
  const manager = fakeManager({
    files: {
      read: async () =>
        (async function* () {
          try {
            for (;;) yield Buffer.alloc(64 * 1024);
          } finally {
            ended.resolve();
          }
        })(),
    },
  });
  const fixture = await serve(t, { manager });
  const response = await open({ ...fixture.options({}), path: "/v1/sandboxes/a/files?path=/x" });
  await once(response, "readable");
  response.destroy();
  await ended.promise;
});

test("an unread download is released: HEAD, and a client that disconnects early", async (t) => {
  const opened = Promise.withResolvers<void>();
  const leave = Promise.withResolvers<void>();
  let released = 0;
  const manager = fakeManager({
    files: {
      read: async (_id, { path }) => {
        if (path === "/slow") {
          opened.resolve();
          await leave.promise;
        }
        const next = async (): Promise<IteratorResult<Buffer>> => ({ done: false, value: Buffer.alloc(64 * 1024) });
        const end = async (): Promise<IteratorResult<Buffer>> => {
          released++;
          return { done: true, value: undefined };
        };
        return { [Symbol.asyncIterator]: () => ({ next, return: end }) };
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/files?path=/x", { method: "HEAD" });
  assert.equal(reply.status, 200);
  assert.equal(released, 1);
  const controller = new AbortController();
  const asked = open({ ...fixture.options({}), path: "/v1/sandboxes/a/files?path=/slow", signal: controller.signal });
  await opened.promise;
  controller.abort();
  await assert.rejects(asked);
  await until(() => fixture.services.inFlight.count <= 1);
  leave.resolve();
  assert.equal(await fixture.services.inFlight.idle(patience()), true);
  await until(() => released === 2);
});

test("an upload of any size and type arrives in pieces", async (t) => {
  const release = Promise.withResolvers<void>();
  let taken = 0;
  const hash = createHash("sha256");
  const manager = fakeManager({
    files: {
      write: async (_id, query, content) => {
        assert.equal(query.path, "/x");
        for await (const piece of content) {
          if (taken === 0) await release.promise;
          taken += piece.length;
          hash.update(piece);
        }
        return { bytes: taken, isOwned: true };
      },
    },
  });
  const fixture = await serve(t, { manager, limits: { bodyBytes: 1000 } });
  const upload = request({
    ...fixture.options({ method: "PUT" }),
    path: "/v1/sandboxes/a/files?path=/x",
    headers: { "content-type": "application/json" },
  });
  const answered = once(upload, "response") as Promise<[IncomingMessage]>;
  const sent = createHash("sha256");
  const piece = Buffer.alloc(256 * 1024, "forkd");
  let hasWaited = false;
  for (let i = 0; i < 200; i++) {
    sent.update(piece);
    if (upload.write(piece)) continue;
    if (!hasWaited && i > 20) {
      // the server reads nothing, so the client must have unsent data
      assert.ok(upload.writableLength > 0);
      hasWaited = true;
      release.resolve();
    }
    if (hasWaited) await once(upload, "drain");
  }
  upload.end();
  const [response] = await answered;
  assert.deepEqual(JSON.parse(await readAll(response)), { bytes: 200 * 256 * 1024 });
  assert.equal(hash.digest("hex"), sent.digest("hex"));
});

test("an empty upload is an empty file", async (t) => {
  const manager = fakeManager({
    files: { write: async (_id, _query, content) => ({ bytes: (await Array.fromAsync(content)).length, isOwned: true }) },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/files?path=/x", { method: "PUT" });
  assert.deepEqual(reply.json(), { bytes: 0 });
});

test("an upload that the guest refuses midway is answered with the reason", async (t) => {
  const manager = fakeManager({
    files: {
      write: async (_id, _query, content) => {
        let bytes = 0;
        for await (const piece of content) {
          bytes += piece.length;
          if (bytes > 100_000) throw new ForkdError("FILE_FAILED", "Cannot write /x: the guest's disk is full.");
        }
        return { bytes, isOwned: true };
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/files?path=/x", { method: "PUT", body: Buffer.alloc(3_000_000) });
  assert.equal(reply.status, 422);
  assert.equal(reply.json()["code"], "FILE_FAILED");
});
