// Cost of frames with few or no bytes while their consumer does not read.

import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { describe, mock, test } from "node:test";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { Writer } from "../../src/util/codec.ts";
import type { AgentConnection } from "../../src/agent/wire/connection.ts";
import { OutputTail } from "../../src/util/growing-buffer.ts";
import { readFileChunks } from "../../src/agent/files/content.ts";
import { ProcessRegistry } from "../../src/agent/process/registry.ts";
import { CHANNEL, DIAL_WINDOW, encodeFrame, FIRST_OF_AGENT, T, WINDOW } from "../../src/agent/wire/protocol.ts";
import { GuestSocket } from "../../src/agent/socket.ts";
import { Outgoing } from "../../src/egress/outgoing.ts";
import { parseAddress } from "../../src/egress/addresses.ts";
import { FakeAgent } from "./fake-agent.ts";

/** for the bytes queued on one channel, and their record headers */
const MOST_MORE = 12 * 1024 * 1024;

const ping = async (agent: AgentConnection): Promise<unknown> => agent.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

function usedBytes(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** One byte per frame, the channels in turn */
function crumbs(stream: number, channels: readonly number[], each: number): Buffer {
  const round = channels.map((channel) => encodeFrame(T.DATA, stream, Buffer.of(channel, 0x61)));
  return Buffer.concat(Array.from({ length: each }, () => round).flat());
}

describe("a guest that sends single bytes", { timeout: patience() }, () => {
  test("of a file that is read slowly costs no more than the bytes", async () => {
    const frames = crumbs(1, [CHANNEL.stdin], WINDOW);
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.READ) return;
      assert.equal(stream, 1);
      void agent.sendAll(frames).then(() => agent.send(T.RESULT, stream, new Writer().u64(BigInt(WINDOW)).done()));
    });
    const agent = await fake.connect();
    const chunks = readFileChunks(agent, "/x");
    let bytes = (await chunks.next()).value?.length ?? 0;
    const before = usedBytes();
    await ping(agent);
    const more = usedBytes() - before;
    assert.ok(more < MOST_MORE, `${more} bytes more`);
    for await (const chunk of chunks) bytes += chunk.length;
    assert.equal(bytes, WINDOW);
  });

  test("of a program's output and errors in turn costs no more than the bytes, and keeps their order", async () => {
    const each = WINDOW / 16;
    const frames = crumbs(1, [CHANNEL.stdout, CHANNEL.stderr], each);
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      void agent.sendAll(frames).then(() => agent.exit(stream));
    });
    const agent = await fake.connect();
    const watch = await new ProcessRegistry(agent).start(["x"]);
    const before = usedBytes();
    await ping(agent);
    const more = usedBytes() - before;
    assert.ok(more < MOST_MORE, `${more} bytes more`);
    const got = { stdout: 0, stderr: 0 };
    await watch.finish((channel, bytes) => {
      got[channel] += bytes.length;
      assert.ok(got.stdout - got.stderr === 0 || got.stdout - got.stderr === 1);
    });
    assert.deepEqual(got, { stdout: each, stderr: each });
  });

  test("of a connection that is not read costs no more than the bytes", async () => {
    const frames = crumbs(1, [CHANNEL.stdin], WINDOW);
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.CONNECT) return;
      agent.send(T.OPENED, stream);
      void agent.sendAll(frames).then(() => agent.send(T.EOF, stream, Buffer.of(CHANNEL.stdin)));
    });
    const agent = await fake.connect();
    const socket = await GuestSocket.connect(agent, 80);
    const before = usedBytes();
    await ping(agent);
    const more = usedBytes() - before;
    assert.ok(more < MOST_MORE, `${more} bytes more`);
    let bytes = 0;
    for await (const chunk of socket) bytes += (chunk as Buffer).length;
    assert.equal(bytes, WINDOW);
  });

  test("to a peer that does not read costs no more than the bytes", async (t) => {
    const peers: Socket[] = [];
    const server = createServer((peer) => {
      peer.on("error", () => undefined); // the connection is closed with the agent
      peers.push(peer.pause());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => {
      for (const peer of peers) peer.destroy();
      server.close();
    });
    const { port } = server.address() as { port: number };
    await using fake = await FakeAgent.listen(() => undefined);
    const agent = await fake.connect();
    const id = FIRST_OF_AGENT;
    let wide = 0;
    agent.accept((incoming) => {
      const outgoing = new Outgoing({
        target: { address: parseAddress("127.0.0.1")!, port, names: [], isOwn: true },
        record: { bytesUp: 0, bytesDown: 0 } as never,
        spend: () => true,
        onDown: () => undefined,
        isWide: () => false,
        onConnected: () => true,
        onEnd: () => undefined,
      });
      outgoing.start(
        incoming.open({
          window: DIAL_WINDOW,
          onData: (_channel, bytes) => {
            wide = Math.max(wide, bytes.length);
            return outgoing.up(bytes);
          },
        }),
      );
    });
    fake.send(T.DIAL, id, new Writer().str("127.0.0.1").u32(port).u32(0).done());
    await until(() => fake.count(T.OPENED) === 1);
    // The socket buffers of the host's kernel are not our memory: they are filled first.
    const filling = Buffer.alloc(DIAL_WINDOW / 2 - 1);
    const given = (): number =>
      fake.received.filter(({ type }) => type === T.CREDIT).reduce((sum, { payload }) => sum + payload.readUInt32LE(1), 0);
    let sent = 0;
    for (let waits = 0; waits < 50; waits++) {
      if (sent === given()) {
        waits = 0;
        sent += filling.length + 1;
        fake.data(id, CHANNEL.stdin, filling);
        fake.data(id, CHANNEL.stdin, "a");
      }
      await ping(agent);
    }
    const credit = DIAL_WINDOW + given() - sent;
    assert.equal(credit, DIAL_WINDOW / 2);
    const before = usedBytes();
    await fake.sendAll(crumbs(id, [CHANNEL.stdin], credit));
    await ping(agent);
    const more = usedBytes() - before;
    assert.ok(more < MOST_MORE, `${more} bytes more`);
    peers[0]?.resume();
    await until(() => given() === sent + credit);
    assert.equal(agent.lost, undefined);
    assert.ok(wide > 1);
  });
});

describe("a guest that breaks the rules of channels", { timeout: patience() }, () => {
  const violations: [name: string, type: number, frames: (stream: number) => Buffer[]][] = [
    ["ends a channel twice", T.CONNECT, (stream) => [eof(stream, 0), eof(stream, 0)]],
    ["sends after the end of a channel", T.CONNECT, (stream) => [eof(stream, 0), data(stream, 0)]],
    ["sends on a channel that its request does not have", T.READ, (stream) => [data(stream, 1)]],
    ["sends on a stream without data", T.WRITE, (stream) => [data(stream, 0)]],
    ["ends a channel that its request does not have", T.READ, (stream) => [eof(stream, 3)]],
  ];
  for (const [name, request, frames] of violations) {
    test(`and ${name} loses its connection`, async () => {
      await using fake = await FakeAgent.listen((agent, { type, stream }) => {
        if (type !== request) return;
        for (const frame of frames(stream)) void agent.sendAll(frame);
      });
      const agent = await fake.connect();
      const blocked = agent.open(request, Buffer.alloc(0), async () => new Promise(() => undefined));
      await assert.rejects(blocked.end(), { code: "AGENT_LOST" });
    });
  }
});

test("a guest that sends requests and does not read the answers loses its connection", { timeout: patience() }, async () => {
  await using fake = await FakeAgent.listen(() => undefined);
  const agent = await fake.connect();
  agent.accept((incoming) => void incoming.open({ onData: () => undefined, window: DIAL_WINDOW }));
  fake.send(T.DIAL, FIRST_OF_AGENT);
  fake.stopReading();
  const frame = data(FIRST_OF_AGENT, CHANNEL.stdin, DIAL_WINDOW / 2);
  for (let i = 0; i < 20_000 && !agent.lost; i++) {
    await Promise.race([fake.sendAll(frame), sleep(patience(), undefined, { ref: false })]);
    // Slower than the rate at which pieces are delivered: a piece that waits gets no credit, and the next one would exceed it.
    if (i % 64 === 0) await sleep(8);
  }
  assert.match(agent.lost?.message ?? "", /does not read/);
});

test("a guest that sends many frames waits, and none is read while the channel is held", { timeout: patience() }, async () => {
  const many = 65_536;
  await using fake = await FakeAgent.listen(() => undefined);
  const agent = await fake.connect();
  const began = performance.now();
  const frames = Buffer.concat(Array.from({ length: many }, () => encodeFrame(T.CREDIT, 9, Buffer.of(0, 1, 0, 0, 0))));
  void fake.sendAll(frames);
  await ping(agent);
  const tookMs = performance.now() - began;
  assert.ok(tookMs > many / 512, `${many} frames were read in ${tookMs} ms`);

  void fake.sendAll(frames);
  await sleep(1);
  const held = agent.hold();
  let isAnswered = false;
  const answer = ping(agent).then(() => (isAnswered = true));
  // longer than any earlier rest
  await sleep(200);
  assert.equal(isAnswered, false);
  held[Symbol.dispose]();
  await answer;
});

test("a request of a guest counts as several frames", { timeout: patience() }, async (t) => {
  const many = 100;
  await using fake = await FakeAgent.listen(() => undefined);
  const agent = await fake.connect();
  let asked = 0;
  agent.accept(({ refuse }) => {
    asked++;
    refuse("denied", "no");
  });
  // simulated time, so that the speed of this machine does not matter
  t.mock.method(performance, "now", () => 1_000_000);
  const hold = t.mock.method(agent, "hold", () => ({ [Symbol.dispose]: () => undefined }));
  const send = async (type: number): Promise<void> =>
    fake.sendAll(Buffer.concat(Array.from({ length: many }, (_, at) => encodeFrame(type, FIRST_OF_AGENT + at, Buffer.alloc(5)))));
  await send(T.CREDIT);
  await nextTurn();
  assert.equal(hold.mock.callCount(), 0);
  await send(T.RESOLVE);
  await until(() => asked === many);
  assert.equal(hold.mock.callCount(), 1);
  agent.close();
});

test("pieces that cannot be joined are delivered slowly, in order and complete", { timeout: patience() }, async () => {
  const each = 4096;
  await using fake = await FakeAgent.listen((agent, { type, stream }) => {
    if (type !== T.EXEC) return;
    void agent.sendAll(crumbs(stream, [CHANNEL.stdout, CHANNEL.stderr], each)).then(() => agent.exit(stream));
  });
  const agent = await fake.connect();
  const began = performance.now();
  let pieces = 0;
  const stream = agent.open(T.EXEC, Buffer.alloc(0), (channel) =>
    assert.equal(channel, pieces++ % 2 === 0 ? CHANNEL.stdout : CHANNEL.stderr),
  );
  await stream.end();
  const tookMs = performance.now() - began;
  assert.equal(pieces, 2 * each);
  assert.ok(tookMs > pieces / 32, `${pieces} pieces in ${tookMs} ms`);
});

test("frames in small pieces are counted together, and floods of several guests share the time", async (t) => {
  const piece = Buffer.concat(Array.from({ length: 200 }, () => encodeFrame(T.CREDIT, 9, Buffer.of(0, 1, 0, 0, 0))));
  const restsMs: number[] = [];
  const floods: [FakeAgent, AgentConnection][] = [];
  for (let at = 0; at < 2; at++) {
    const fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream, new Writer().u64(1n).done()));
    t.after(async () => fake[Symbol.asyncDispose]());
    floods.push([fake, await fake.connect()]);
  }
  // simulated time, so that the speed of this machine does not matter
  t.mock.method(performance, "now", () => 1_000_000);
  t.mock.method(globalThis, "setTimeout", (_wake: () => void, ms: number) => void restsMs.push(ms));
  for (const [fake, agent] of floods) {
    const hold = t.mock.method(agent, "hold", () => ({ [Symbol.dispose]: () => undefined }));
    for (let pieces = 0; hold.mock.callCount() === 0 && pieces < 10; pieces++) {
      await fake.sendAll(piece);
      await nextTurn();
    }
    assert.equal(hold.mock.callCount(), 1);
  }
  t.mock.restoreAll();
  for (const [, agent] of floods) agent.close();
  const [first = 0, second = 0] = restsMs;
  assert.ok(first > 1 && second > 2 * first - 0.1, restsMs.join(" "));
});

test("the end of an output in single bytes costs no more memory than its bytes", () => {
  const tail = new OutputTail(1000);
  const all = Buffer.from(Array.from({ length: 100_000 }, (_, at) => 97 + (at % 26)));
  const concat = mock.method(Buffer, "concat");
  for (let at = 0; at < all.length; at++) tail.add(all.subarray(at, at + 1));
  assert.ok(concat.mock.callCount() <= all.length / 1000, `${concat.mock.callCount()} copies`);
  concat.mock.restore();
  assert.equal(tail.toString(), all.subarray(-1000).toString());
  tail.add(Buffer.from("x".repeat(5000)));
  assert.equal(tail.toString(), "x".repeat(1000));
  tail.add(Buffer.from("yz"));
  assert.equal(tail.toString(), `${"x".repeat(998)}yz`);
});

function data(stream: number, channel: number, bytes = 1): Buffer {
  return encodeFrame(T.DATA, stream, Buffer.concat([Buffer.of(channel), Buffer.alloc(bytes)]));
}

function eof(stream: number, channel: number): Buffer {
  return encodeFrame(T.EOF, stream, Buffer.of(channel));
}
