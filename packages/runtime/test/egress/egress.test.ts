// Egress of one sandbox: connections, names, limits and changes of policy.

import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { after, describe, test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Writer } from "../../src/util/codec.ts";
import { CHANNEL, DIAL_WINDOW, T } from "../../src/agent/wire/protocol.ts";
import { NO_NETWORK } from "../../src/egress/policy.ts";
import { watchUnhandled } from "../agent/fake-agent.ts";
import { Dialler, LocalServer } from "./helpers/dialler.ts";

after(watchUnhandled());

/** Whether it was reset */
async function closed(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => void socket.once("close", resolve));
}

describe("a connection", { timeout: patience() }, () => {
  test("carries bytes in both directions, closes each by itself, and is counted", async () => {
    await using server = await LocalServer.listen((socket) => socket.pipe(socket));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("192.0.2.1", server.port);
    await guest.frame(stream, T.OPENED);
    guest.agent.data(stream, CHANNEL.stdin, "hello");
    await until(() => guest.bytesOn(stream).toString() === "hello");
    assert.equal(guest.egress.stats.open, 1);
    guest.eof(stream);
    await guest.frame(stream, T.EOF);
    guest.agent.send(T.RESULT, stream);
    await until(() => guest.egress.stats.open === 0);
    const { total, refused, bytesUp, bytesDown, recent } = guest.egress.stats;
    assert.deepEqual([total, refused, bytesUp, bytesDown], [1, 0, 5, 5]);
    assert.equal(recent[0]?.name, "host.forkd.internal");
    assert.equal(recent[0]?.error, null);
    assert.deepEqual(
      guest.events.map(({ event }) => event),
      ["opened", "ended"],
    );
  });

  test("that is refused ends with the reason", async () => {
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

  test("that the server resets is reset for the program", async () => {
    await using server = await LocalServer.listen((socket) => socket.resetAndDestroy());
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    await guest.frame(guest.dial("127.0.0.1", server.port), T.CANCEL);
    assert.equal(guest.egress.stats.recent[0]?.error, "ECONNRESET");
  });

  test("that the program resets is reset for the server", async () => {
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
    // within the credit nothing happens; beyond it the guest's channel is closed
    const chunk = Buffer.alloc(32_768);
    let credit = DIAL_WINDOW;
    const given = (): number =>
      guest.agent.received.filter((f) => f.stream === stream && f.type === T.CREDIT).reduce((sum, f) => sum + f.payload.readUInt32LE(1), 0);
    for (let sent = 0; sent < 64 * 1024 * 1024; sent += chunk.length) {
      if (credit + given() - sent < chunk.length) await guest.settle();
      if (credit + given() - sent < chunk.length) break;
      guest.agent.data(stream, CHANNEL.stdin, chunk);
    }
    assert.ok(given() < 32 * 1024 * 1024, `${given()} bytes were taken`);
    assert.equal(guest.agent.count(T.CANCEL), 0);
    assert.equal(guest.connection.lost, undefined);
  });

  test("that the server closes delivers its last bytes before the end, also to a slow reader", async () => {
    await using server = await LocalServer.listen((socket) => socket.write(Buffer.alloc(DIAL_WINDOW, "x")));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await until(() => guest.bytesOn(stream).length === DIAL_WINDOW);
    // a single piece, without credit for it
    server.sockets[0]?.end("last");
    await until(() => guest.egress.stats.bytesDown === DIAL_WINDOW + 4);
    await guest.settle();
    assert.equal(guest.agent.count(T.EOF), 0);
    guest.agent.send(T.CREDIT, stream, new Writer().u8(CHANNEL.stdin).u32(DIAL_WINDOW).done());
    await guest.frame(stream, T.EOF);
    assert.equal(guest.bytesOn(stream).subarray(DIAL_WINDOW).toString(), "last");
  });

  test("of a program that does not read gets no more than its window", async () => {
    await using server = await LocalServer.listen((socket) => socket.write(Buffer.alloc(8 * 1024 * 1024)));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await until(() => guest.bytesOn(stream).length === DIAL_WINDOW);
    await guest.settle();
    assert.equal(guest.bytesOn(stream).length, DIAL_WINDOW);
  });
});

describe("a change of policy", { timeout: patience() }, () => {
  test("closes connections that are no longer allowed, and no others", async () => {
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
    await until(() => guest.bytesOn(b).toString() === "still");
    guest.egress.set(NO_NETWORK);
    await guest.frame(b, T.CANCEL);
    assert.match(guest.egress.stats.recent[0]?.error ?? "", /the policy was changed/);
    assert.match(await guest.refusal(guest.dial("127.0.0.1", two.port)), /the network is off/);
  });

  test("applies to connections whose name is being resolved", async () => {
    await using guest = await Dialler.make({ mode: "allow", allow: ["a.example"] }, { "a.example": { A: [["203.0.113.10"]] } });
    const release = guest.upstream.hold();
    const stream = guest.dial("203.0.113.10", 443, ["a.example"]);
    await until(() => guest.upstream.asked.length === 1);
    guest.egress.set(NO_NETWORK);
    release();
    assert.match(await guest.refusal(stream), /the network is off/);
  });
});

describe("the egress limit", { timeout: patience() }, () => {
  test("is never exceeded: the connection is cut off first", async () => {
    let got = 0;
    await using server = await LocalServer.listen((socket) => socket.on("data", (chunk) => (got += chunk.length)));
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule], egressLimitBytes: 100_000 });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.frame(stream, T.OPENED);
    for (let i = 0; i < 4; i++) guest.agent.data(stream, CHANNEL.stdin, Buffer.alloc(16_000));
    await until(() => got === 64_000);
    for (let i = 0; i < 3; i++) guest.agent.data(stream, CHANNEL.stdin, Buffer.alloc(16_000));
    await guest.frame(stream, T.CANCEL);
    assert.ok(got <= 100_000);
    assert.equal(guest.egress.spent, 100_000);
    assert.match(await guest.refusal(guest.dial("127.0.0.1", server.port)), /egress limit/);
    // journaled before it was spent
    assert.ok(guest.spent.length > 0 && guest.spent.every((bytes) => bytes <= 100_000));
    assert.equal(guest.spent.at(-1), 100_000);
    guest.egress.set({ mode: "allow", allow: [server.rule], egressLimitBytes: 200_000 });
    await guest.frame(guest.dial("127.0.0.1", server.port), T.OPENED);
  });

  test("of 0 lets nothing out", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "open", allow: [server.rule], egressLimitBytes: 0 });
    assert.match(await guest.refusal(guest.dial("127.0.0.1", server.port)), /egress limit/);
    assert.equal(server.sockets.length, 0);
  });
});

test("no rule allows the daemon's own address", { timeout: patience() }, async () => {
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
