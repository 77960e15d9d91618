// Discovery of servers in a guest, and connections to them.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { ForkdError } from "../../src/errors.ts";
import { Reader, Writer } from "../../src/util/codec.ts";
import { listListeners, PortFinder } from "../../src/agent/ports.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { GuestSocket } from "../../src/agent/socket.ts";
import { FakeAgent, watchUnhandled, type Behaviour } from "./fake-agent.ts";

type Listener = [address: string, port: number, pid: number, name: string];

after(watchUnhandled());

/** A guest with these listeners; a server sends its address to each client */
function guestWith(listeners: Listener[], asked: string[] = []): Behaviour {
  return (agent, { type, stream, payload }) => {
    const reader = new Reader(payload);
    if (type === T.LISTENERS) {
      asked.push("listeners");
      const list = new Writer().list(listeners, (w, [address, port, pid, name]) => void w.str(address).u32(port).u32(pid).str(name));
      agent.send(T.RESULT, stream, list.done());
    }
    if (type !== T.CONNECT) return;
    const [host, port] = [reader.str(), reader.u32()];
    asked.push(host);
    const reached = host === "127.0.0.1" ? "0.0.0.0" : host === "::1" ? "::" : host;
    if (!listeners.some(([address, known]) => known === port && (address === host || address === reached)))
      return agent.send(T.ERROR, stream, new Writer().str("ECONNREFUSED").str("Connection refused").done());
    agent.send(T.OPENED, stream);
    agent.data(stream, CHANNEL.stdin, host);
    agent.send(T.EOF, stream, Buffer.of(CHANNEL.stdin));
  };
}

async function greeting(socket: GuestSocket): Promise<string> {
  const pieces = await socket.toArray();
  socket.destroy();
  return Buffer.concat(pieces as Buffer[]).toString();
}

test("listeners are sorted by port, with their family, and their owner if known", async () => {
  await using fake = await FakeAgent.listen(
    guestWith([
      ["::1", 8080, 0, ""],
      ["0.0.0.0", 80, 7, "nginx"],
    ]),
  );
  assert.deepEqual(await listListeners(await fake.connect(), { owners: true }), [
    { port: 80, address: "0.0.0.0", family: "ipv4", process: { pid: 7, name: "nginx" } },
    { port: 8080, address: "::1", family: "ipv6" },
  ]);
});

test("a malformed listener is refused", async () => {
  for (const listener of [
    ["localhost", 80, 0, ""],
    ["127.0.0.1", 0, 0, ""],
    ["127.0.0.1", 70_000, 0, ""],
  ] as Listener[]) {
    await using fake = await FakeAgent.listen(guestWith([listener]));
    await assert.rejects(listListeners(await fake.connect(), { owners: false }), { code: "AGENT_PROTOCOL" });
  }
});

test("a port is found at any address of the guest, and searched once", async () => {
  const asked: string[] = [];
  const guest = guestWith(
    [
      ["0.0.0.0", 80, 0, ""],
      ["::1", 5173, 0, ""],
      ["10.0.2.15", 9000, 0, ""],
      ["::", 9001, 0, ""],
    ],
    asked,
  );
  await using fake = await FakeAgent.listen(guest);
  const agent = await fake.connect();
  const finder = new PortFinder();
  const reach = async (port: number): Promise<string> => greeting(await finder.connect(agent, port));
  assert.deepEqual([await reach(80), await reach(5173), await reach(9000), await reach(9001)], ["127.0.0.1", "::1", "10.0.2.15", "::1"]);
  assert.equal(asked.filter((what) => what === "listeners").length, 3);
  asked.length = 0;
  await reach(5173);
  assert.deepEqual(asked, ["::1"]);
});

test("a server that moved is found again, and a stopped one is PORT_CLOSED", async () => {
  const listeners: Listener[] = [["::1", 5173, 0, ""]];
  await using fake = await FakeAgent.listen(guestWith(listeners));
  const agent = await fake.connect();
  const finder = new PortFinder();
  assert.equal(await greeting(await finder.connect(agent, 5173)), "::1");
  listeners[0] = ["127.0.0.1", 5173, 0, ""];
  assert.equal(await greeting(await finder.connect(agent, 5173)), "127.0.0.1");
  listeners.length = 0;
  await assert.rejects(finder.connect(agent, 5173), (error) => error instanceof ForkdError && error.code === "PORT_CLOSED");
});

test("a reader slower than the guest's end gets all bytes and the end", async () => {
  const piece = Buffer.alloc(32_768, "a");
  await using fake = await FakeAgent.listen((agent, { type, stream }) => {
    if (type !== T.CONNECT) return;
    agent.send(T.OPENED, stream);
    for (let i = 0; i < 4; i++) agent.data(stream, CHANNEL.stdin, piece);
    agent.send(T.EOF, stream, Buffer.of(CHANNEL.stdin));
    agent.send(T.RESULT, stream);
  });
  const socket = await GuestSocket.connect(await fake.connect(), 80);
  socket.end();
  while (socket.readableLength === 0) await turn();
  let bytes = 0;
  for await (const chunk of socket) {
    bytes += (chunk as Buffer).length;
    await turn();
  }
  assert.equal(bytes, 4 * piece.length);
});
