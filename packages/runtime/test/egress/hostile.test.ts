// Egress against a hostile guest: it reaches nothing that is not allowed, and costs little.

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Writer } from "../../src/util/codec.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { RCODE, TYPE } from "../../src/egress/dns.ts";
import { watchUnhandled } from "../agent/fake-agent.ts";
import { Dialler, FIRST, LocalServer } from "./helpers/dialler.ts";
import { query, readAnswers } from "./helpers/messages.ts";

after(watchUnhandled());

const PUBLIC = "203.0.113.10";

describe("names", { timeout: patience() }, () => {
  test("claimed by the guest are accepted only if they resolve to the address", async () => {
    const records = { "good.example": { A: [["203.0.113.99"]] }, "evil.example": { A: [[PUBLIC]] } };
    await using guest = await Dialler.make({ mode: "allow", allow: ["good.example"] }, records);
    for (const names of [
      ["good.example"],
      ["good.example", "evil.example"],
      ["evil.example"],
      ["GOOD.example."],
      ["203.0.113.99"],
      ["x".repeat(300)],
    ])
      assert.match(await guest.refusal(guest.dial(PUBLIC, 443, names)), /no rule allows it/, names.join(" "));
    // no query for a name that is not allowed was sent
    assert.deepEqual([...new Set(guest.upstream.asked)], ["A good.example"]);
  });

  test("claimed by the guest have the same rate limit as others", async () => {
    await using guest = await Dialler.make({ mode: "allow", allow: ["*.wide.example"], egressLimitBytes: 500 }, {});
    for (let i = 0; i < 200; i++) guest.dial(PUBLIC, 443, [`secret-${i}.wide.example`]);
    await until(() => guest.agent.count(T.ERROR) === 200);
    assert.ok(guest.upstream.asked.length < 30, `${guest.upstream.asked.length} were asked for`);
  });

  test("that resolve to another address the second time do not allow it", async (t) => {
    const records = { "rebind.example": { A: [[PUBLIC], ["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"]], ttl: 0 } };
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: ["rebind.example"] }, records);
    const first = await guest.resolve(query("rebind.example", TYPE.A));
    assert.deepEqual(first.addresses, [PUBLIC]);
    const now = performance.now.bind(performance);
    t.mock.method(performance, "now", () => now() + 1100);
    const second = await guest.resolve(query("rebind.example", TYPE.A));
    assert.deepEqual([second.addresses, readAnswers(second.response)], [[], []]);
    for (const ip of ["127.0.0.1", "192.0.2.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"])
      assert.match(await guest.refusal(guest.dial(ip, server.port, ["rebind.example"])), /address/, ip);
    assert.equal(server.sockets.length, 0);
  });

  test("that are not allowed get no answer and no upstream query, in any notation", async () => {
    await using guest = await Dialler.make(
      { mode: "allow", allow: ["good.example", "*.tree.example"] },
      { "evil.example": { A: [[PUBLIC]] } },
    );
    for (const name of [
      "evil.example",
      "EVIL.example",
      "good.example.evil.example",
      "xgood.example",
      "tree.example",
      "example",
      "secret-data.evil.example",
    ])
      for (const type of [TYPE.A, TYPE.AAAA, TYPE.TXT, 65, 255]) {
        const { response, addresses } = await guest.resolve(query(name, type));
        assert.deepEqual([response.readUInt16BE(2) & 0xf, addresses], [RCODE.noSuchName, []], name);
      }
    assert.deepEqual(guest.upstream.asked, []);
    assert.equal(guest.egress.stats.recent[0]?.reason, "no rule allows the name");
  });

  test("of the host are resolved only if a rule allows it", async () => {
    await using closed = await Dialler.make({ mode: "open" });
    assert.equal((await closed.resolve(query("host.forkd.internal", TYPE.A))).response.readUInt16BE(2) & 0xf, RCODE.noSuchName);
    await using open = await Dialler.make({ mode: "allow", allow: ["127.0.0.1:1"] });
    assert.deepEqual((await open.resolve(query("host.forkd.internal", TYPE.A))).addresses, ["192.0.2.1"]);
  });

  test("are resolved over TCP as over UDP, for any server address", async () => {
    await using guest = await Dialler.make({ mode: "allow", allow: ["good.example"] }, { "good.example": { A: [[PUBLIC]] } });
    const stream = guest.dial("8.8.8.8", 53);
    await guest.frame(stream, T.OPENED);
    const framed = (name: string): Buffer => {
      const message = query(name, TYPE.A);
      return Buffer.concat([Buffer.of(0, message.length), message]);
    };
    const both = Buffer.concat([framed("good.example"), framed("evil.example")]);
    for (let at = 0; at < both.length; at += 7) guest.agent.data(stream, CHANNEL.stdin, both.subarray(at, at + 7));
    await until(() => guest.bytesOn(stream).length > 70);
    const bytes = guest.bytesOn(stream);
    const length = bytes.readUInt16BE(0);
    assert.equal([...(readAnswers(bytes.subarray(2, 2 + length))[0]?.data ?? [])].join("."), PUBLIC);
    assert.equal(bytes.readUInt16BE(2 + length + 2 + 2) & 0xf, RCODE.noSuchName);
    // the program that asked is recorded with the name
    guest.egress.set({ mode: "allow", allow: ["good.example"], egressLimitBytes: 0 });
    assert.match(await guest.refusal(guest.dial(PUBLIC, 443)), /egress limit/);
    guest.agent.data(stream, CHANNEL.stdin, Buffer.of(0xff, 0xff));
    await guest.frame(stream, T.CANCEL);
  });
});

describe("floods", { timeout: patience() }, () => {
  test("of connections are bounded, and the rest of the channel continues", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    for (let i = 0; i < 3000; i++) guest.dial("127.0.0.1", server.port);
    await guest.connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    await until(() => guest.agent.count(T.OPENED) + guest.agent.count(T.ERROR) === 3000);
    assert.equal(guest.agent.count(T.OPENED), 512);
    assert.equal(guest.egress.stats.open, 512);
    assert.equal(guest.egress.stats.recent.length, 100);
  });

  test("of refused connections leave few records", async () => {
    await using guest = await Dialler.make({ mode: "none" });
    const from = performance.now();
    for (let i = 0; i < 5000; i++) guest.dial("203.0.113.10", 1 + i);
    await until(() => guest.agent.count(T.ERROR) === 5000);
    assert.equal(guest.egress.stats.refused, 5000);
    // 100 at once, and 10 more per second
    const most = 100 + 10 * Math.ceil((performance.now() - from) / 1000);
    assert.ok(guest.events.length <= most, `${guest.events.length} events`);
  });

  test("of queries are bounded", async () => {
    await using guest = await Dialler.make({ mode: "open" });
    const release = guest.upstream.hold();
    for (let i = 0; i < 1000; i++) guest.agent.send(T.RESOLVE, FIRST + i, new Writer().bytes(query("n.example", TYPE.A)).done());
    await until(() => guest.agent.count(T.ERROR) === 1000 - 256);
    assert.equal(guest.upstream.asked.length, 1);
    release();
    await until(() => guest.agent.count(T.RESULT) === 256);
  });

  test("of lookups are bounded, and answered as failed beyond that", async () => {
    await using guest = await Dialler.make({ mode: "open" });
    const release = guest.upstream.hold();
    for (let i = 0; i < 1000; i++) guest.agent.send(T.RESOLVE, FIRST + i, new Writer().bytes(query(`n${i}.example`, TYPE.A)).done());
    // some of them arrive together and exceed the limit of queries
    const answered = (): number => guest.agent.count(T.RESULT) + guest.agent.count(T.ERROR);
    await until(() => answered() === 1000 - 128);
    assert.equal(guest.upstream.asked.length, 128);
    release();
    await until(() => answered() === 1000);
  });

  test("of requests whose answers are not read close the channel before they fill the memory", async () => {
    await using guest = await Dialler.make({ mode: "none" });
    guest.agent.stopReading();
    for (let i = 0; i < 60_000 && !guest.connection.lost; i++) {
      guest.dial("203.0.113.10", 443);
      if (i % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => guest.connection.lost !== undefined);
    assert.match(guest.connection.lost?.message ?? "", /does not read its input/);
  });
});

describe("frames", { timeout: patience() }, () => {
  test("for streams that are not open, or that the agent may not open, have no effect", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    guest.dial("127.0.0.1", server.port, [], 5);
    guest.dial("127.0.0.1", server.port, [], FIRST - 1);
    for (const type of [T.DATA, T.EOF, T.CREDIT, T.RESULT, T.ERROR, T.OPENED, T.CANCEL, T.EXEC, 0x7f])
      guest.agent.send(type, FIRST + 9, Buffer.alloc(8));
    await guest.connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    assert.equal(server.sockets.length, 0);
    assert.equal(guest.agent.count(T.ERROR) + guest.agent.count(T.OPENED), 0);
  });

  test("of a second DIAL on a stream in use have no effect", async () => {
    await using server = await LocalServer.listen(() => undefined);
    await using guest = await Dialler.make({ mode: "allow", allow: [server.rule] });
    const stream = guest.dial("127.0.0.1", server.port);
    await guest.frame(stream, T.OPENED);
    guest.dial("127.0.0.1", server.port, [], stream);
    await guest.connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    assert.equal(server.sockets.length, 1);
  });

  test("with bytes before OPENED close the channel", async () => {
    await using guest = await Dialler.make({ mode: "allow", allow: ["a.example"] }, { "a.example": { A: [[PUBLIC]] } });
    const release = guest.upstream.hold();
    const stream = guest.dial(PUBLIC, 443, ["a.example"]);
    guest.agent.data(stream, CHANNEL.stdin, "early");
    await guest.frame(stream, T.CANCEL);
    release();
    await guest.connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    assert.equal(guest.egress.stats.total, 0);
  });

  for (const [what, payload] of [
    ["nothing", Buffer.alloc(0)],
    ["a string without its end", Buffer.from([255, 255, 255, 127])],
    ["more names than bytes", new Writer().str(PUBLIC).u32(443).u32(0xffffffff).done()],
    [
      "very many names",
      new Writer()
        .str(PUBLIC)
        .u32(443)
        .list(Array.from({ length: 65 }, String), (out, name) => void out.str(name))
        .done(),
    ],
  ] as const) {
    test(`a DIAL with ${what} breaks the protocol`, async () => {
      await using guest = await Dialler.make({ mode: "open" });
      guest.agent.send(T.DIAL, FIRST, payload);
      await until(() => guest.connection.lost !== undefined);
      assert.match(guest.connection.lost?.message ?? "", /broke the protocol/);
    });
  }

  test("with an invalid address or port are refused", async () => {
    await using guest = await Dialler.make({ mode: "open", allow: ["127.0.0.1"] });
    for (const [ip, port] of [
      ...["127.1", "0x7f000001", "2130706433", "localhost", "example.org", "", "fe80::1%lo", "127.0.0.1\0", "[::1]"].map(
        (text) => [text, 80] as const,
      ),
      ["203.0.113.1", 0],
      ["203.0.113.1", 65_536],
      ["203.0.113.1", 0xffffffff],
    ] as const)
      assert.match(await guest.refusal(guest.dial(ip, port)), /not an address/, `${ip} ${port}`);
  });

  test("with an invalid query, or with too many, are refused", async () => {
    await using guest = await Dialler.make({ mode: "open" });
    guest.agent.send(T.RESOLVE, FIRST, new Writer().bytes(Buffer.alloc(3)).done());
    await guest.frame(FIRST, T.ERROR);
    guest.agent.send(T.RESOLVE, FIRST + 1, Buffer.of(9, 9, 9, 9));
    await until(() => guest.connection.lost !== undefined);
  });
});
