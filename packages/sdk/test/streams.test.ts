// Streamed bodies, in both directions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, type Progress } from "../src/index.ts";
import { jsonLinesOf, linesOf, serverEventsOf, textOf } from "../src/streams.ts";
import { FakeDaemon } from "./helpers/fake-daemon.ts";
import { snapshot } from "./helpers/samples.ts";
import type { ServerResponse } from "node:http";

const ways = ["socket", "url"] as const;

/** One byte per chunk, the worst case */
async function* oneByOne(text: string): AsyncGenerator<Uint8Array> {
  for (const byte of new TextEncoder().encode(text)) yield Uint8Array.of(byte);
}

test("characters and lines that are split between chunks", async () => {
  const text = "größe\r\n\n🙂 ok\nlast";
  assert.equal((await Array.fromAsync(textOf(oneByOne(text)))).join(""), text);
  assert.deepEqual(await Array.fromAsync(linesOf(oneByOne(text))), ["größe", "", "🙂 ok", "last"]);
  assert.deepEqual(await Array.fromAsync(jsonLinesOf(oneByOne('{"a":"ü"}\n\n[1]'))), [{ a: "ü" }, [1]]);
});

test("a line without an end is refused before it fills the memory", async () => {
  let sent = 0;
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (; ; sent++) yield new Uint8Array(1000).fill(97);
  }
  await assert.rejects(Array.fromAsync(linesOf(endless(), 10_000)), { code: "BAD_ANSWER" });
  assert.ok(sent < 12);
});

test("server-sent events: comments, several lines of data, ids without data", async () => {
  const text = ": hello\nretry: 1\n\nid: 4\n\nid: 5\nevent: a\ndata: one\ndata:two\n\ndata\n\ndata: cut off";
  assert.deepEqual(await Array.fromAsync(serverEventsOf(oneByOne(text))), [
    { id: "4", type: "message", data: "" },
    { id: "5", type: "a", data: "one\ntwo" },
    { id: "5", type: "message", data: "" },
  ]);
});

for (const way of ways) {
  test(`progress over ${way}, then the result`, async () => {
    await using daemon = await FakeDaemon.start((seen, response) => {
      assert.match(String(seen.headers.accept), /application\/x-ndjson/);
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.write('{"progress":{"step":"boot","done":1,"to');
      response.end(`tal":2,"unit":"items"}}\n{"progress":{"step":"warm"}}\n${JSON.stringify({ result: snapshot })}\n`);
      return true;
    });
    const steps: Progress[] = [];
    const made = await new Controller({ [way]: daemon[way] }).createSnapshot("py", { onProgress: (p) => void steps.push(p) });
    assert.deepEqual(made, snapshot);
    assert.deepEqual(steps, [{ step: "boot", done: 1, total: 2, unit: "items" }, { step: "warm" }]);
  });
}

test("a fully read file returns its connection to the pool", async () => {
  await using daemon = await FakeDaemon.start();
  const c = new Controller({ socket: daemon.socket });
  for (let i = 0; i < 5; i++) {
    await c.readFile("sb-1", "/x");
    await Array.fromAsync(c.logs("sb-1"));
    await c.createSnapshot("py");
    await assert.rejects(c.getSandbox("a/b"));
  }
  assert.equal(daemon.connections, 1);
});

test("an error after progress has the status of its code", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.end('{"progress":{"step":"boot"}}\n{"error":{"error":"No.","code":"WARMUP_FAILED","hint":"h","request_id":"r"}}\n');
    return true;
  });
  const call = new Controller({ socket: daemon.socket }).createSnapshot("py");
  await assert.rejects(call, { name: "InvalidRequestError", code: "WARMUP_FAILED", status: 422, requestId: "r" });
  assert.equal(daemon.seen.length, 1);
});

test("broken progress is retried with the same key", async () => {
  const read = Promise.withResolvers<void>();
  await using daemon = await FakeDaemon.start((_seen, response, count) => {
    if (count > 1) return false;
    response.writeHead(200, { "content-type": "application/x-ndjson" }).write('{"progress":{"step":"boot"}}\n');
    void read.promise.then(() => response.destroy());
    return true;
  });
  const made = await new Controller({ socket: daemon.socket }).createSnapshot("py", { onProgress: () => read.resolve() });
  assert.deepEqual(made, snapshot);
  assert.equal(daemon.seen.length, 2);
});

test("an error thrown by onProgress is the caller's", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" }).write('{"progress":{"step":"boot"}}\n');
    return true;
  });
  const onProgress = (): never => {
    throw new Error("mine");
  };
  await assert.rejects(new Controller({ socket: daemon.socket }).createSnapshot("py", { onProgress }), { message: "mine" });
  assert.equal(daemon.seen.length, 1);
});

for (const way of ways) {
  test(`large files both ways over ${way}`, async () => {
    const chunk = new Uint8Array(1 << 20).map((_, i) => i % 251);
    await using daemon = await FakeDaemon.start(async (seen, response) => {
      if (seen.route !== "readFile") return false;
      for (let i = 0; i < 16; i++) if (!response.write(chunk)) await new Promise((done) => response.once("drain", done));
      response.end();
      return true;
    });
    const c = new Controller({ [way]: daemon[way] });
    async function* source(): AsyncGenerator<Uint8Array> {
      for (let i = 0; i < 16; i++) yield chunk;
    }
    await c.writeFile("sb-1", "/big", source());
    assert.equal((daemon.last.body as Buffer).length, 16 << 20);
    const read = await c.readFile("sb-1", "/big");
    assert.equal(read.constructor, Uint8Array);
    assert.equal(Buffer.compare(read, Buffer.concat(Array.from({ length: 16 }, () => chunk))), 0);
    await c.writeFile("sb-1", "/bytes", chunk);
    assert.equal(Buffer.compare(daemon.last.body as Buffer, chunk), 0);
  });

  test(`an error of the source over ${way} rejects the call, without a retry`, async () => {
    await using daemon = await FakeDaemon.start();
    async function* source(): AsyncGenerator<Uint8Array> {
      yield Uint8Array.of(1);
      throw new Error("disk");
    }
    await assert.rejects(new Controller({ [way]: daemon[way] }).writeFile("sb-1", "/x", source()), { message: "disk" });
    assert.equal(daemon.seen.length, 0);
  });

  test(`an incomplete file over ${way} is an error`, async () => {
    await using daemon = await FakeDaemon.start((_seen, response) => {
      response.writeHead(200).write("half", () => response.destroy());
      return true;
    });
    await assert.rejects(new Controller({ [way]: daemon[way] }).readFile("sb-1", "/x"), { name: "ConnectionError" });
  });

  test(`a stream that falls silent over ${way} times out, a slow one does not`, async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const opened = Promise.withResolvers<ServerResponse>();
    await using daemon = await FakeDaemon.start((_seen, response) => {
      opened.resolve(response.writeHead(200));
      response.flushHeaders();
      return true;
    });
    const c = new Controller({ [way]: daemon[way] });
    const chunks = c.readFileStream("sb-1", "/slow", { timeoutMs: 1000 })[Symbol.asyncIterator]();
    let next = chunks.next();
    const response = await opened.promise;
    for (let i = 0; i < 4; i++) {
      response.write("x");
      assert.deepEqual((await next).value, Uint8Array.of(120));
      next = chunks.next();
      t.mock.timers.tick(900);
    }
    t.mock.timers.tick(100);
    await assert.rejects(next, { name: "TimeoutError" });
  });

  test(`leaving a stream over ${way} closes it`, async () => {
    let closed: (value?: unknown) => void = () => undefined;
    const whenClosed = new Promise((done) => (closed = done));
    await using daemon = await FakeDaemon.start((_seen, response) => {
      response.once("close", closed);
      response.writeHead(200).write("first\n");
      return true;
    });
    for await (const text of new Controller({ [way]: daemon[way] }).logs("sb-1", { follow: true })) {
      assert.equal(text, "first\n");
      break;
    }
    await whenClosed;
  });

  test(`a followed log over ${way} ends with its signal, without an error`, async () => {
    await using daemon = await FakeDaemon.start((_seen, response) => {
      response.writeHead(200).write("first\n");
      return true;
    });
    const abort = new AbortController();
    const lines: string[] = [];
    for await (const text of new Controller({ [way]: daemon[way] }).logs("sb-1", { follow: true, signal: abort.signal })) {
      lines.push(text);
      setImmediate(() => abort.abort());
    }
    assert.deepEqual(lines, ["first\n"]);
  });
}
