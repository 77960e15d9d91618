// The stream of events, across lost connections.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, type ForkdEvent } from "../src/index.ts";
import { FakeDaemon, problem } from "./helpers/fake-daemon.ts";

function event(id: number): ForkdEvent {
  return {
    id,
    time: "t",
    type: "sandbox.created",
    project: "default",
    sandbox: "sb-1",
    snapshot: null,
    principal: null,
    reason: null,
    metadata: null,
  };
}

function line(id: number): string {
  return `id: ${id}\nevent: sandbox.created\ndata: ${JSON.stringify(event(id))}\n\n`;
}

for (const way of ["socket", "url"] as const) {
  test(`over ${way}: resumes after the last event, across lost connections and a restart of the daemon`, async () => {
    const read = Promise.withResolvers<void>();
    await using daemon = await FakeDaemon.start((_seen, response, count) => {
      if (count === 2) return problem(response, 503, { code: "STOPPING", error: "Stops." });
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("retry: 1000\n\n");
      if (count === 1) {
        response.write(line(7) + line(8));
        void read.promise.then(() => response.destroy());
      } else {
        response.write(": still here\n\n" + line(9));
      }
      return true;
    });
    const abort = new AbortController();
    const ids: number[] = [];
    const controller = new Controller({ [way]: daemon[way], retries: 0 });
    for await (const { id } of controller.events({
      since: 6,
      types: ["sandbox.created", "sandbox.lost"],
      sandbox: "sb-1",
      signal: abort.signal,
    })) {
      ids.push(id);
      if (id === 8) read.resolve();
      if (id === 9) abort.abort();
    }
    assert.deepEqual(ids, [7, 8, 9]);
    const [first, , third] = daemon.seen;
    assert.deepEqual(first?.query, { since: 6, types: ["sandbox.created", "sandbox.lost"], sandbox: "sb-1" });
    assert.equal(first?.headers["last-event-id"], undefined);
    assert.equal(third?.headers["last-event-id"], "8");
    assert.deepEqual(third?.query, { types: ["sandbox.created", "sandbox.lost"], sandbox: "sb-1" });
  });
}

test("a position of a gateway's stream is named before each event, and continues it", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`id: aaaa:6,bbbb:1\n\n${line(7).replace("id: 7", "id: aaaa:7,bbbb:1")}`);
    return true;
  });
  const abort = new AbortController();
  const positions: string[] = [];
  const controller = new Controller({ socket: daemon.socket });
  for await (const { id } of controller.events({
    since: "aaaa:5,bbbb:1",
    onPosition: (at) => positions.push(at),
    signal: abort.signal,
  })) {
    assert.equal(id, 7);
    abort.abort();
  }
  assert.deepEqual(positions, ["aaaa:6,bbbb:1", "aaaa:7,bbbb:1"]);
  assert.equal(daemon.seen[0]?.headers["last-event-id"], "aaaa:5,bbbb:1");
});

test("a failed first connection is an error, and so is a revoked token", async () => {
  await using daemon = await FakeDaemon.start((_seen, response, count) => {
    if (count > 1) return problem(response, 401, { code: "UNAUTHORIZED", error: "No." });
    response.writeHead(200, { "content-type": "text/event-stream" }).end(line(1));
    return true;
  });
  await assert.rejects(Array.fromAsync(new Controller({ socket: daemon.socket }).events()), { name: "AuthenticationError" });
  assert.equal(daemon.seen.length, 2);
  await assert.rejects(Array.fromAsync(new Controller({ socket: "/nonexistent/forkd.sock" }).events()), { name: "ConnectionError" });
});

test("a signal ends the wait for the first event", async () => {
  const abort = new AbortController();
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    abort.abort();
    return true;
  });
  const events = new Controller({ socket: daemon.socket }).events({ signal: abort.signal });
  assert.deepEqual(await Array.fromAsync(events), []);
});
