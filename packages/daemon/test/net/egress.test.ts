// One sandbox's way out: connections, names, limits and changes of policy.

import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { after, describe, test } from "node:test";
import { Writer } from "../../src/guest/codec.ts";
import { CHANNEL, DIAL_WINDOW, T } from "../../src/guest/protocol.ts";
import { NO_NETWORK } from "../../src/net/policy.ts";
import { watchUnhandled } from "../guest/fake-agent.ts";
import { Dialler, LocalServer } from "./helpers/dialler.ts";

after(watchUnhandled());

/** Whether it was broken off */
async function closed(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => void socket.once("close", resolve));
}

describe("a connection", { timeout: 60_000 }, () => {
  test("carries bytes both ways and each end by itself, and is counted", async () => {
    await using server = await LocalServer.listen((socket) => socket.pipe(socket));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("192.0.2.1", server.port);
    await guest.frame(stream, T.OPENED);
    guest.agent.data(stream, CHANNEL.stdin, "hello");
    await guest.until(() => guest.bytesOn(stream).toString() === "hello");
    assert.equal(guest.egress.stats.open, 1);
    guest.eof(stream);
    await guest.frame(stream, T.EOF);
    guest.agent.send(T.RESULT, stream);
    await guest.until(() => guest.egress.stats.open === 0);
    const { total, refused, bytesUp, bytesDown, recent } = guest.egress.stats;
    assert.deepEqual([total, refused, bytesUp, bytesDown], [1, 0, 5, 5]);
    assert.equal(recent[0]?.name, "host.forkd.internal");
    assert.equal(recent[0]?.error, null);
    assert.deepEqual(
      guest.events.map(({ event }) => event),
      ["opened", "ended"],
    );
  });

  test("that nobody takes ends with why", async () => {
    const server = await LocalServer.listen(() => undefined);
    const { port, rule } = server;
    await server[Symbol.asyncDispose]();
    await using guest = await Dialler.make({ mode: "allow", allow: [rule] });
    const stream = guest.dial("127.0.0.1", port);
    await guest.frame(stream, T.CANCEL);
    assert.equal(guest.agent.count(T.OPENED), 0);
    assert.equal(guest.egress.stats.recent[0]?.error, "ECONNREFUSED");
    assert.equal(guest.egress.stats.open, 0);
  });

  test("that the server breaks off breaks off for the program", async () => {
    await using server = await LocalServer.listen((socket) => socket.resetAndDestroy());
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    await guest.frame(guest.dial("127.0.0.1", server.port), T.CANCEL);
    assert.equal(guest.egress.stats.recent[0]?.error, "ECONNRESET");
  });

  test("that the program breaks off breaks off for the server", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.frame(stream, T.OPENED);
    const [socket] = server.sockets;
    assert.ok(socket);
    const ended = closed(socket);
    socket.resume();
    guest.agent.send(T.ERROR, stream, Buffer.from("0a00000045434f4e4e52455345540000 0000".replace(" ", ""), "hex"));
    assert.equal(await ended, true);
    assert.equal(guest.egress.stats.open, 0);
  });

  test("ends with the guest's channel", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    await guest.frame(guest.dial("127.0.0.1", server.port), T.OPENED);
    const ended = closed(server.sockets[0] ?? assert.fail());
    guest.connection.close();
    await ended;
    assert.equal(guest.egress.stats.open, 0);
  });

  test("to a server that does not read takes no more than its window", async () => {
    await using server = await LocalServer.listen((socket) => socket.pause());
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.frame(stream, T.OPENED);
    const isCut = guest.frame(stream, T.CANCEL).then(() => true);
    // within the credit all is well, beyond it the guest's channel is ended
    const chunk = Buffer.alloc(32_768);
    let credit = DIAL_WINDOW;
    const given = (): number =>
      guest.agent.received.filter((f) => f.stream === stream && f.type === T.CREDIT).reduce((sum, f) => sum + f.payload.readUInt32LE(1), 0);
    for (let sent = 0; sent < 64 * 1024 * 1024; sent += chunk.length) {
      if (credit + given() - sent < chunk.length) await new Promise((resolve) => setTimeout(resolve, 50));
      if (credit + given() - sent < chunk.length) break;
      guest.agent.data(stream, CHANNEL.stdin, chunk);
    }
    assert.ok(given() < 32 * 1024 * 1024, `${given()} bytes were taken`);
    assert.equal(await Promise.race([isCut, Promise.resolve(false)]), false);
    assert.equal(guest.connection.lost, undefined);
  });

  test("that the server ends has its last bytes before its end, however slowly they are read", async () => {
    await using server = await LocalServer.listen((socket) => socket.write(Buffer.alloc(DIAL_WINDOW, "x")));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.until(() => guest.bytesOn(stream).length === DIAL_WINDOW);
    // alone, and without credit for it
    server.sockets[0]?.end("last");
    await guest.until(() => guest.egress.stats.bytesDown === DIAL_WINDOW + 4);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(guest.agent.count(T.EOF), 0);
    guest.agent.send(T.CREDIT, stream, new Writer().u8(CHANNEL.stdin).u32(DIAL_WINDOW).done());
    await guest.frame(stream, T.EOF);
    assert.equal(guest.bytesOn(stream).subarray(DIAL_WINDOW).toString(), "last");
  });

  test("of a program that does not read gets no more than its window", async () => {
    await using server = await LocalServer.listen((socket) => socket.write(Buffer.alloc(8 * 1024 * 1024)));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.until(() => guest.bytesOn(stream).length === DIAL_WINDOW);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(guest.bytesOn(stream).length, DIAL_WINDOW);
  });
});

describe("a change of policy", { timeout: 60_000 }, () => {
  test("cuts off what is no longer allowed, and nothing else", async () => {
    await using one = await LocalServer.listen((socket) => socket.pipe(socket));
    await using two = await LocalServer.listen((socket) => socket.pipe(socket));
    await using guest = await Dialler.make({ mode: "allow", allow: [one.rule, two.rule] });
    const [a, b] = [guest.dial("127.0.0.1", one.port), guest.dial("127.0.0.1", two.port)];
    await guest.frame(a, T.OPENED);
    await guest.frame(b, T.OPENED);
    const ended = closed(one.sockets[0] ?? assert.fail());
    guest.egress.set({ ...NO_NETWORK, mode: "allow", allow: [two.rule] });
    assert.equal(guest.egress.stats.open, 1);
    await guest.frame(a, T.CANCEL);
    await ended;
    guest.agent.data(b, CHANNEL.stdin, "still");
    await guest.until(() => guest.bytesOn(b).toString() === "still");
    guest.egress.set(NO_NETWORK);
    await guest.frame(b, T.CANCEL);
    assert.match(guest.egress.stats.recent[0]?.error ?? "", /the policy was changed/);
    assert.match(await guest.refusal(guest.dial("127.0.0.1", two.port)), /the network is off/);
  });

  test("counts for what is only being looked up", async () => {
    await using guest = await Dialler.make({ mode: "allow", allow: ["a.example"] }, { "a.example": { A: [["203.0.113.10"]] } });
    const release = guest.upstream.hold();
    const stream = guest.dial("203.0.113.10", 443, ["a.example"]);
    await guest.until(() => guest.upstream.asked.length === 1);
    guest.egress.set(NO_NETWORK);
    release();
    assert.match(await guest.refusal(stream), /the network is off/);
  });
});

describe("the egress limit", { timeout: 60_000 }, () => {
  test("is never passed, and what would be is cut off", async () => {
    let got = 0;
    await using server = await LocalServer.listen((socket) => socket.on("data", (chunk) => (got += chunk.length)));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule], egressLimitBytes: 100_000 });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.frame(stream, T.OPENED);
    for (let i = 0; i < 4; i++) guest.agent.data(stream, CHANNEL.stdin, Buffer.alloc(16_000));
    await guest.until(() => got === 64_000);
    for (let i = 0; i < 3; i++) guest.agent.data(stream, CHANNEL.stdin, Buffer.alloc(16_000));
    await guest.frame(stream, T.CANCEL);
    assert.ok(got <= 100_000);
    assert.equal(guest.egress.spent, 100_000);
    assert.match(await guest.refusal(guest.dial("127.0.0.1", server.port)), /egress limit/);
    // written down before it was spent
    assert.ok(guest.spent.length > 0 && guest.spent.every((bytes) => bytes <= 100_000));
    assert.equal(guest.spent.at(-1), 100_000);
    guest.egress.set({ mode: "allow", allow: [server.rule], egressLimitBytes: 200_000 });
    await guest.frame(guest.dial("127.0.0.1", server.port), T.OPENED);
  });

  test("of nothing lets nothing out", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "open", allow: [server.rule], egressLimitBytes: 0 });
    assert.match(await guest.refusal(guest.dial("127.0.0.1", server.port)), /egress limit/);
    assert.equal(server.sockets.length, 0);
  });
});

test("where the daemon itself listens no rule leads", { timeout: 60_000 }, async () => {
  await using server = await LocalServer.listen(() => undefined);
  await using other = await LocalServer.listen(() => undefined);
  await using guest = await Dialler.make({ mode: "allow", allow: [server.rule, other.rule, `127.0.0.2:${other.port}`] });
  guest.network.reserve("127.0.0.1", server.port);
  guest.network.reserve("0.0.0.0", other.port);
  assert.match(await guest.refusal(guest.dial("127.0.0.1", server.port)), /daemon's own/);
  assert.match(await guest.refusal(guest.dial("192.0.2.1", server.port)), /daemon's own/);
  assert.match(await guest.refusal(guest.dial("127.0.0.2", other.port)), /daemon's own/);
  assert.equal(server.sockets.length + other.sockets.length, 0);
});
