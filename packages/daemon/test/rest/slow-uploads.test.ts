// Slow uploads, and connections beyond the limit.

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { patience } from "../../../../tests/helpers/patience.ts";
import { readPieces } from "../../src/streams/body.ts";
import { serve } from "../helpers/serve.ts";

const LIMITS = { uploadIdleMs: 100, uploadBytesPerSec: 1024 };

async function* trickle(bytes: number, everyMs: number, count: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < count; at++) {
    await sleep(everyMs);
    yield Buffer.alloc(bytes);
  }
}

async function taken(stream: Readable, limits = LIMITS, pauseMs = 0): Promise<number> {
  let bytes = 0;
  for await (const piece of readPieces(stream, limits)) {
    bytes += piece.length;
    if (pauseMs > 0) await sleep(pauseMs);
  }
  return bytes;
}

test("an upload below the minimum rate times out", { timeout: patience() }, async () => {
  const endless = Readable.from(trickle(1, 10, Infinity));
  await assert.rejects(taken(endless), { code: "REQUEST_TIMEOUT", message: /less than 1024 bytes a second/ });
  endless.destroy();
});

test("a slow but steady upload is accepted, and so is one with a slow receiver", { timeout: patience() }, async () => {
  assert.equal(await taken(Readable.from(trickle(1024, 10, 40))), 40 * 1024);
  assert.equal(await taken(Readable.from(Array.from({ length: 20 }, () => Buffer.alloc(1))), LIMITS, 20), 20);
  assert.equal(await taken(Readable.from(trickle(1, 10, 40)), { ...LIMITS, uploadBytesPerSec: 0 }), 40);
});

test("connections beyond the limit are closed, and a closed one makes space", { timeout: patience() }, async (t) => {
  const { port } = await serve(t, { limits: { connections: 3 } });
  const open: Socket[] = [];
  t.after(() => {
    for (const socket of open) socket.destroy();
  });
  const isServed = async (): Promise<boolean> => {
    const socket = connect(port, "127.0.0.1");
    open.push(socket);
    socket.on("error", () => undefined); // reset if the limit is reached
    socket.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    const answered = once(socket, "data").then(() => true);
    return Promise.race([answered, once(socket, "close").then(() => false)]);
  };
  assert.deepEqual([await isServed(), await isServed(), await isServed(), await isServed()], [true, true, true, false]);
  open[0]?.destroy();
  while (!(await isServed())) await sleep(10);
});
