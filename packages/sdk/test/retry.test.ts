// Which calls are repeated, and which are not.

import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Controller, Sandbox } from "../src/index.ts";
import { FakeDaemon, problem } from "./helpers/fake-daemon.ts";
import { sandbox } from "./helpers/samples.ts";

const busyOnce = () =>
  FakeDaemon.start((_seen, response, count) => (count === 1 ? problem(response, 503, { code: "BUSY", error: "Busy." }) : false));

const lostOnce = () =>
  FakeDaemon.start((_seen, response, count) => {
    if (count > 1) return false;
    response.destroy();
    return true;
  });

for (const [name, start] of [
  ["a busy daemon", busyOnce],
  ["a lost connection", lostOnce],
] as const) {
  test(`${name}: reads, removals and creations are repeated, with the same key`, async () => {
    await using daemon = await start();
    const c = new Controller({ socket: daemon.socket });
    await c.status();
    await c.killSandbox("sb-1");
    await c.spawnSandboxes("py");
    await c.writeFile("sb-1", "/x", "text");
    const names = ["getStatus", "deleteSandbox", "createSandboxes", "writeFile"];
    assert.deepEqual(
      daemon.names,
      names.flatMap((route) => [route, route]),
    );
    const keys = daemon.seen.filter(({ route }) => route === "createSandboxes").map(({ headers }) => headers["idempotency-key"]);
    assert.equal(keys[0], keys[1]);
  });

  test(`${name}: programs and code run at most once, unless the caller gave a key`, async () => {
    await using daemon = await start();
    const c = new Controller({ socket: daemon.socket });
    await assert.rejects(c.execCommand("sb-1", ["true"]));
    await assert.rejects(c.evalCode("sb-1", "1"));
    await assert.rejects(c.updateSandbox("sb-1", { ttlSecs: 1 }));
    await assert.rejects(c.writeFile("sb-1", "/x", "text", { append: true }));
    assert.deepEqual(daemon.names, ["execCommand", "evalCode", "updateSandbox", "writeFile"]);
    daemon.seen.length = 0;
    await c.execCommand("sb-1", ["true"], { idempotencyKey: "k" });
    assert.deepEqual(daemon.names, ["execCommand", "execCommand"]);
  });
}

test("number of tries", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => problem(response, 503, { code: "STOPPING", error: "Stops." }));
  await assert.rejects(new Controller({ socket: daemon.socket }).status(), { code: "STOPPING" });
  assert.equal(daemon.seen.length, 3);
  await assert.rejects(new Controller({ socket: daemon.socket, retries: 0 }).status(), { code: "STOPPING" });
  assert.equal(daemon.seen.length, 4);
});

test("a full host is not retried", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => problem(response, 503, { code: "LIMIT_REACHED", error: "Full." }));
  await assert.rejects(new Controller({ socket: daemon.socket }).spawnSandboxes("py"), { name: "LimitError" });
  assert.equal(daemon.seen.length, 1);
});

test("not found after a lost answer of a removal is success", async () => {
  await using daemon = await FakeDaemon.start((_seen, response, count) => {
    if (count > 1) return problem(response, 404, { code: "NOT_FOUND", error: "Gone." });
    response.destroy();
    return true;
  });
  const handle = new Sandbox(new Controller({ socket: daemon.socket }), sandbox);
  assert.equal(await handle.kill(), true);
  assert.equal(await handle.kill(), false);
});

test("a connection that was closed while idle", async () => {
  // The server answers one request per connection, and closes it at the moment the next one comes.
  const folder = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  const socket = join(folder, "forkd.sock");
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((connection) => {
    connections++;
    sockets.add(connection);
    let requests = 0;
    connection.on("error", () => undefined);
    connection.on("data", () => {
      if (++requests > 1) connection.destroy();
      else connection.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}');
    });
  });
  await new Promise<void>((done) => server.listen(socket, done));
  try {
    const c = new Controller({ socket });
    assert.deepEqual(await c.health(), { ok: true });
    assert.deepEqual(await c.health(), { ok: true });
    assert.equal(connections, 2);
    await assert.rejects(c.evalCode("sb-1", "1"), { name: "ConnectionError" });
    assert.equal(connections, 2);
  } finally {
    for (const connection of sockets) connection.destroy();
    await new Promise((done) => server.close(done));
    await rm(folder, { recursive: true });
  }
});
