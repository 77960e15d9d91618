// Processes over a WebSocket, also with clients that violate the protocol.

import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { test } from "node:test";
import { WebSocket, type ClientOptions } from "ws";
import { ForkdError } from "@forkd/runtime/errors";
import { until } from "../../../../tests/helpers/until.ts";
import { fakeManager } from "../helpers/fake-manager.ts";
import { EXIT, FakeWatched, output } from "../helpers/fake-watched.ts";
import { serve, settled, type Fixture } from "../helpers/serve.ts";
import type { IncomingMessage } from "node:http";
import type { TestContext } from "node:test";
import type { ManagerApi } from "../../src/service/manager.ts";
import type { Limits } from "../../src/streams/limits.ts";

const PATH = "/v1/sandboxes/sb/processes/stream";

type Client = { socket: WebSocket; messages: unknown[]; closed: Promise<[code: number]> };

async function connect(fixture: Fixture, opts: ClientOptions & { tcp?: boolean } = {}): Promise<Client> {
  const { tcp, ...rest } = opts;
  const socket = new WebSocket(tcp ? `ws://127.0.0.1:${fixture.port}${PATH}` : `ws+unix:${fixture.socket}:${PATH}`, rest);
  const messages: unknown[] = [];
  socket.on("message", (data: Buffer, isBinary: boolean) => messages.push(isBinary ? data : (JSON.parse(data.toString()) as unknown)));
  const closed = once(socket, "close") as Promise<[number]>;
  await once(socket, "open");
  return { socket, messages, closed };
}

async function setting(
  t: TestContext,
  more: Partial<ManagerApi["processes"]> = {},
  limits: Partial<Limits> = {},
): Promise<{ fixture: Fixture; process: FakeWatched }> {
  const process = new FakeWatched();
  const processes = { watch: async () => process, startWatched: async () => process, ...more };
  return { process, fixture: await serve(t, { manager: fakeManager({ processes }), limits }) };
}

test("starts a process, carries its bytes both ways, and closes after its end", async (t) => {
  let request: unknown;
  const { fixture, process } = await setting(t, {
    startWatched: async (_id, body) => {
      request = body;
      return process;
    },
  });
  const client = await connect(fixture);
  client.socket.send(JSON.stringify({ start: { args: ["cat"], stdin: true } }));
  client.socket.send(Buffer.from("in"));
  client.socket.send(JSON.stringify({ resize: { rows: 5, cols: 6 } }));
  client.socket.send(JSON.stringify({ signal: "SIGINT" }));
  client.socket.send(Buffer.from("put"));
  client.socket.send(JSON.stringify({ close_stdin: true }));
  await until(() => process.told.length === 5);
  assert.deepEqual(process.told, ["in", { rows: 5, cols: 6 }, { signal: "SIGINT", scope: "group" }, "put", "close"]);
  process.put({ type: "lost", channel: "stderr", offset: 9, bytes: 9 }, output("out", 100), output("err", 0, "stderr"), EXIT);
  assert.deepEqual((await client.closed)[0], 1000);
  assert.deepEqual(client.messages, [
    { started: process.started },
    { lost: { channel: "stderr", bytes: 9 } },
    Buffer.from("\u0001out"),
    Buffer.from("\u0002err"),
    { exit: { exit_code: 0, signal: null, timed_out: false } },
  ]);
  assert.deepEqual(request, { args: ["cat"], stdin: true });
  assert.ok(process.isClosed);
});

test("attaches at an offset, and detaches without ending the process", async (t) => {
  let asked: unknown;
  const { fixture, process } = await setting(t, {
    watch: async (_id, name, from) => {
      asked = [name, from];
      return process;
    },
  });
  const client = await connect(fixture);
  client.socket.send(JSON.stringify({ attach: { process: "web", stdout_from: 12, stderr_from: "now" } }));
  await until(() => client.messages.length === 1);
  assert.deepEqual(asked, ["web", { stdout_from: 12, stderr_from: "now" }]);
  client.socket.close();
  await client.closed;
  await until(() => process.isClosed);
  assert.deepEqual(process.told, []);
});

test("an invalid message is answered with an error and closes only the connection", async (t) => {
  const { fixture } = await setting(t);
  for (const first of ["no json", "{}", '{"start":{"args":[]}}', '{"start":{"args":["x"],"bogus":1}}', '{"attach":{}}', Buffer.from("x")]) {
    const client = await connect(fixture);
    client.socket.send(first);
    assert.equal((await client.closed)[0], 1008, String(first));
    assert.equal((client.messages[0] as { error: { code: string } }).error.code, "BAD_REQUEST", String(first));
  }
  for (const later of ["no json", '{"signal":"SIGNOPE"}', '{"resize":{"rows":0,"cols":1}}', '{"close_stdin":false}', '{"start":{}}']) {
    const { fixture: own, process } = await setting(t);
    const client = await connect(own);
    client.socket.send('{"attach":{"process":"7"}}');
    client.socket.send(later);
    assert.equal((await client.closed)[0], 1008, later);
    assert.equal((client.messages.at(-1) as { error: { code: string } }).error.code, "BAD_REQUEST", later);
    await until(() => process.isClosed);
  }
});

test("a message that is too large closes the connection", async (t) => {
  const { fixture, process } = await setting(t);
  const client = await connect(fixture);
  client.socket.send('{"attach":{"process":"7"}}');
  client.socket.send(Buffer.alloc(2 * 1024 * 1024));
  assert.equal((await client.closed)[0], 1009);
  await until(() => process.isClosed && fixture.services.inFlight.count === 0);
  assert.doesNotMatch(fixture.logged(), /INTERNAL/);
});

test("a closed stdin is reported, and the connection continues", async (t) => {
  const { fixture, process } = await setting(t);
  process.refusal = new ForkdError("STDIN_CLOSED", "Cannot write to process 7: its stdin is closed.");
  const client = await connect(fixture);
  client.socket.send('{"attach":{"process":"7"}}');
  client.socket.send(Buffer.from("x"));
  await until(() => client.messages.length === 2);
  assert.equal((client.messages[1] as { error: { code: string } }).error.code, "STDIN_CLOSED");
  process.put(output("still here", 100), EXIT);
  assert.equal((await client.closed)[0], 1000);
  assert.deepEqual(client.messages[2], Buffer.from("\u0001still here"));
});

test("an error of the process is reported", async (t) => {
  const { fixture, process } = await setting(t);
  const client = await connect(fixture);
  client.socket.send('{"attach":{"process":"7"}}');
  await until(() => client.messages.length === 1);
  process.fail(new ForkdError("AGENT_LOST", "The connection to the guest's agent has ended."));
  assert.equal((await client.closed)[0], 1011);
  assert.equal((client.messages[1] as { error: { code: string } }).error.code, "AGENT_LOST");
});

test("a daemon that stops closes with 1001, before and after the client's first message", async (t) => {
  const { fixture, process } = await setting(t);
  const silent = await connect(fixture);
  const client = await connect(fixture);
  client.socket.send('{"attach":{"process":"7"}}');
  await until(() => client.messages.length === 1);
  fixture.stopping.abort();
  assert.deepEqual([(await client.closed)[0], (await silent.closed)[0]], [1001, 1001]);
  await until(() => process.isClosed && fixture.services.inFlight.count === 0);
});

test("buffers for a client that does not read are bounded, and it is disconnected when it is dropped", async (t) => {
  const { fixture, process } = await setting(t);
  const client = await connect(fixture);
  client.socket.send('{"attach":{"process":"7"}}');
  await until(() => client.messages.length === 1);
  client.socket.pause();
  const pieces = 2000;
  for (let i = 0; i < pieces; i++) process.put(output(Buffer.alloc(32_768), 100 + i * 32_768));
  await settled(() => process.read);
  assert.ok(process.read < pieces / 4, `${process.read} pieces were read for a client that does not read`);
  process.drop();
  await until(() => process.isClosed && fixture.services.inFlight.count === 0);
  client.socket.terminate();
});

test("a vanished client is detected", async (t) => {
  const { fixture, process } = await setting(t, {}, { heartbeatMs: 20 });
  const client = await connect(fixture, { autoPong: false });
  client.socket.send('{"attach":{"process":"7"}}');
  await client.closed;
  await until(() => process.isClosed);
});

test("it needs a token, a sandbox's name and a handshake, like every request", async (t) => {
  const { fixture } = await setting(t);
  const answer = async (headers: Record<string, string>, path = PATH): Promise<IncomingMessage> => {
    const asking = request({ host: "127.0.0.1", port: fixture.port, path, headers, agent: false });
    asking.end();
    const [response] = (await Promise.race([
      once(asking, "response"),
      once(asking, "error").then(([error]) => Promise.reject(error as Error)),
    ])) as [IncomingMessage];
    response.resume();
    return response;
  };
  const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
  assert.equal((await answer({ ...upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" })).statusCode, 401);
  const { token } = fixture.services.tokens.create({ name: "t", scope: "read", max_sandboxes: null });
  const reader = { authorization: `Bearer ${token}` };
  assert.equal((await answer({ ...upgrade, ...reader })).statusCode, 403);
  const { token: exec } = fixture.services.tokens.create({ name: "e", scope: "exec", max_sandboxes: null });
  const user = { authorization: `Bearer ${exec}` };
  assert.equal((await answer({ ...user })).statusCode, 426);
  assert.equal((await answer({ ...upgrade, ...user })).statusCode, 400, "a handshake without a key");
  const client = await connect(fixture, { tcp: true, headers: user });
  client.socket.close();
  await client.closed;
});
