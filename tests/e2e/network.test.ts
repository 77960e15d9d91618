// What a sandbox may connect to, on real VMs in a small Internet of the test's own.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { NetDaemon } from "../helpers/net-daemon.ts";
import { probe } from "../helpers/net-guest.ts";
import { NetWorld, OUTSIDE } from "../helpers/net-world.ts";

import type { NetworkOptions, Sandbox } from "forkd";

/** none of these may be reached unless a rule names them; servers of ours listen on all */
const FORBIDDEN = [
  OUTSIDE.private,
  OUTSIDE.otherPrivate,
  OUTSIDE.metadata,
  OUTSIDE.carrier,
  OUTSIDE.benchmarking,
  OUTSIDE.unique6,
  OUTSIDE.translated6,
  `::ffff:${OUTSIDE.private}`,
  // the host: its own addresses, and its loopback by the name server's address
  "198.51.100.1",
  "10.55.0.1",
  "2001:db8:1::1",
  "192.0.2.1",
];

const missing = await NetWorld.missing();

describe("a sandbox's network", { skip: missing ?? false }, () => {
  let net: NetDaemon;
  let world: NetWorld;

  before(async () => {
    net = await NetDaemon.start();
    world = net.world;
    await net.makeSnapshot();
  });

  after(async () => net?.[Symbol.asyncDispose]());

  beforeEach(async () => net.beginTest());

  const make = async (network?: NetworkOptions): Promise<Sandbox> => net.sandbox(network);

  const reached = (): string[] => [...new Set(world.hits.map(({ address }) => address))].toSorted();

  it("is off unless it is asked for: everything fails at once, and nothing is asked", async () => {
    await using sandbox = await make();
    assert.deepEqual(sandbox.info.network, { mode: "none", allow: [], egress_limit_bytes: null });
    for (const host of [OUTSIDE.public, OUTSIDE.public6, OUTSIDE.metadata, "192.0.2.1"])
      assert.equal(await probe(sandbox, `get("${host}")`), "OSError ENETUNREACH", host);
    assert.match(String(await probe(sandbox, `get("pub.test")`)), /gaierror/);
    assert.deepEqual(await probe(sandbox, `ask("pub.test")`), ["ENETUNREACH", []]);
    assert.deepEqual([world.hits, world.asked], [[], []]);
  });

  it("allows by name, by wildcard and by port, over IPv4 and IPv6", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test:80", "*.PUB.test"] });
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
    assert.deepEqual(await sandbox.ports.list(), [], "what takes connections for the host is not one of its servers");
    assert.equal(await probe(sandbox, `get("www.pub.test")`), "hello");
    assert.equal(await probe(sandbox, `get("www.pub.test", 8080)`), "hello");
    // by address, once the name led there
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public6}")`), "hello");
    assert.equal(await probe(sandbox, `get("pub.test", 8080)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.gateway}")`), "ConnectionResetError ECONNRESET");
    assert.match(String(await probe(sandbox, `get("private.test")`)), /gaierror/);
    assert.deepEqual(reached(), [OUTSIDE.public6, OUTSIDE.otherPublic].toSorted());
    assert.ok(
      world.asked.every((name) => name.endsWith("pub.test")),
      world.asked.join(" "),
    );
    const { recent, connections_refused: refused, bytes_down: down } = await sandbox.network.get();
    assert.ok(refused >= 3);
    assert.ok(down > 0);
    const named = recent.find(({ name, decision }) => name === "pub.test" && decision === "allowed");
    assert.deepEqual([named?.ip, named?.port, named?.reason, named?.open], [OUTSIDE.public6, 80, "rule pub.test:80", false]);
    assert.ok(recent.some(({ name, ip, decision }) => name === "private.test" && ip === null && decision === "refused"));
  });

  it("allows by address and by range", async () => {
    await using sandbox = await make({ mode: "allow", allow: [`${OUTSIDE.private}:80`, "203.0.113.0/24:80,443", "[fd00:77::/32]:80"] });
    for (const host of [OUTSIDE.private, OUTSIDE.public, OUTSIDE.otherPublic, OUTSIDE.unique6])
      assert.equal(await probe(sandbox, `get("${host}")`), "hello", host);
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}", 8080)`), "ConnectionResetError ECONNRESET");
    for (const host of [OUTSIDE.otherPrivate, OUTSIDE.metadata, OUTSIDE.gateway, OUTSIDE.public6])
      assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET", host);
    assert.deepEqual(reached(), [OUTSIDE.private, OUTSIDE.public, OUTSIDE.otherPublic, OUTSIDE.unique6].toSorted());
    assert.deepEqual(world.asked, []);
  });

  it("that is open reaches what is public, and nothing else", async () => {
    await using sandbox = await make({ mode: "open" });
    for (const host of [OUTSIDE.public, OUTSIDE.public6, OUTSIDE.gateway, "pub.test"])
      assert.equal(await probe(sandbox, `get("${host}")`), "hello", host);
    const before = world.hits.length;
    for (const host of FORBIDDEN) assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET", host);
    for (const host of ["0.1.2.3", "240.0.0.1", "100::1", "2002:a09:807::1"])
      assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET", host);
    assert.match(String(await probe(sandbox, `get("private.test")`)), /gaierror/);
    assert.deepEqual(await probe(sandbox, `ask("mixed.test")`), [0, [OUTSIDE.public]]);
    assert.equal(world.hits.length, before);
  });

  it("lets a name that moves to a private address lead nowhere", async () => {
    await world.name({
      "rebind.test": { A: [[OUTSIDE.public], [OUTSIDE.private], ["127.0.0.1"], [OUTSIDE.metadata], [OUTSIDE.private, OUTSIDE.metadata]] },
    });
    await using sandbox = await make({ mode: "allow", allow: ["rebind.test"] });
    assert.equal(await probe(sandbox, `get("rebind.test")`), "hello");
    for (let i = 0; i < 4; i++) {
      await probe(sandbox, "time.sleep(1.2)");
      assert.match(String(await probe(sandbox, `get("rebind.test")`)), /gaierror/);
    }
    assert.ok(world.asked.length >= 4);
    for (const host of [OUTSIDE.private, OUTSIDE.metadata, "192.0.2.1"])
      assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET", host);
    // what the name led to first is still public
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "hello");
    assert.deepEqual(reached(), [OUTSIDE.public]);
  });

  it("reaches the host itself only where a rule names its very address", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["127.0.0.1:8080", "198.51.100.1:80"] });
    assert.equal(await probe(sandbox, `get("host.forkd.internal", 8080)`), "hello");
    assert.equal(await probe(sandbox, `get("198.51.100.1")`), "hello");
    assert.equal(await probe(sandbox, `get("host.forkd.internal", 80)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("10.55.0.1")`), "ConnectionResetError ECONNRESET");
    assert.deepEqual(reached(), ["127.0.0.1", "198.51.100.1"]);
    // a program's own loopback stays its own
    assert.equal(await probe(sandbox, `get("127.0.0.1", 8080)`), "ConnectionRefusedError ECONNREFUSED");
    await sandbox.network.set({ mode: "allow", allow: ["127.0.0.0/8", "198.51.100.0/24"] });
    assert.match(String(await probe(sandbox, `get("host.forkd.internal", 8080)`)), /gaierror/);
    assert.equal(await probe(sandbox, `get("192.0.2.1", 8080)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("198.51.100.1")`), "ConnectionResetError ECONNRESET");
  });

  it("answers for names by itself, whoever is asked and however", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    const found = [0, [OUTSIDE.public]];
    for (const server of ["192.0.2.1", "8.8.8.8", OUTSIDE.private, "2001:db8::53"])
      for (const tcp of ["False", "True"]) assert.deepEqual(await probe(sandbox, `ask("pub.test", 1, "${server}", ${tcp})`), found, server);
    assert.deepEqual(await probe(sandbox, `ask("pub.test", 28)`), [0, [OUTSIDE.public6]]);
    assert.deepEqual(await probe(sandbox, `ask("pub.test", 65)`), [0, []]);
    assert.deepEqual(await probe(sandbox, `ask("PuB.TeSt")`), found);
    assert.deepEqual([world.hits.length, [...new Set(world.asked)]], [0, ["pub.test"]]);
    // nothing of what a program puts into other names leaves
    world.forget();
    await probe(sandbox, `[ask("%d.secret.evil.test" % i) for i in range(200)][-1]`);
    for (const name of ["evil.test", "pub.test.evil.test", "xpub.test", "www.pub.test"])
      assert.deepEqual(await probe(sandbox, `ask("${name}")`), [3, []], name);
    assert.deepEqual(world.asked, []);
  });

  it("is cut off by a change of policy, in the middle of a connection", async (t) => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    assert.equal(await probe(sandbox, `hold("a", "pub.test")`), "hello");
    assert.equal(await probe(sandbox, `hold("b", "${OUTSIDE.public}")`), "hello");
    assert.equal((await sandbox.network.get()).connections_open, 2);
    await sandbox.network.set({ mode: "allow", allow: [OUTSIDE.public] });
    // one of them is still allowed
    assert.equal((await sandbox.network.get()).connections_open, 1);
    assert.equal(await probe(sandbox, `echo("a")`), "ECONNRESET");
    assert.equal(await probe(sandbox, `echo("b")`), "hello");
    const seen = probe(sandbox, `waits("b")`).then((what) => ({ what, at: performance.now() }));
    await new Promise((resolve) => setTimeout(resolve, 500));
    const from = performance.now();
    const info = await sandbox.network.set({ mode: "none" });
    const inForce = performance.now() - from;
    assert.equal(info.connections_open, 0);
    const { what, at } = await seen;
    assert.equal(what, "ECONNRESET");
    t.diagnostic(`the policy was in force after ${inForce.toFixed(1)} ms, and the program had told so after ${(at - from).toFixed(1)} ms`);
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    await sandbox.network.set({ mode: "open" });
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
    const events = await net.daemon.cli(["events", "--json", "--since", "0", "--count", "3", "--types", "sandbox.network"]);
    assert.deepEqual(
      events.stdout
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { metadata: unknown }).metadata),
      // of the test before, and of this one
      [{ mode: "allow" }, { mode: "allow" }, { mode: "none" }],
    );
  });

  it("can be closed while the sandbox is paused, and be opened after that", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    assert.equal(await probe(sandbox, `hold("a", "pub.test")`), "hello");
    await sandbox.pause();
    assert.equal((await sandbox.network.set({ mode: "none" })).connections_open, 0);
    await assert.rejects(sandbox.network.set({ mode: "open" }), { code: "SANDBOX_PAUSED" });
    await sandbox.resume();
    assert.equal(await probe(sandbox, `echo("a")`), "ECONNRESET");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    await sandbox.network.set({ mode: "open" });
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
  });

  it("finds its name server whatever the image has in that place", async () => {
    await using sandbox = await make();
    for (const script of ["rm -f /etc/resolv.conf; ln -s ../run/nowhere/stub.conf /etc/resolv.conf", "rm -f /etc/resolv.conf"]) {
      assert.equal((await sandbox.exec(script)).exit_code, 0);
      await using child = (await sandbox.fork(1, { network: { mode: "allow", allow: ["pub.test"] } }))[0] ?? assert.fail();
      assert.equal(await probe(child, `get("pub.test")`), "hello", script);
      assert.equal((await child.exec("cat /etc/resolv.conf")).stdout, "nameserver 192.0.2.1\n");
    }
  });

  it("refuses rules that are none, and changes nothing then", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    for (const allow of [
      ["https://pub.test"],
      ["10.0.0.1/8"],
      ["pub.test:99999"],
      ["127.1"],
      [""],
      Array.from({ length: 257 }, () => "a.test"),
    ])
      await assert.rejects(sandbox.network.set({ mode: "allow", allow }), { code: "BAD_REQUEST" }, allow[0]);
    await assert.rejects(sandbox.network.set({ mode: "none", allow: ["pub.test"] }), { code: "BAD_REQUEST" });
    await assert.rejects(make({ mode: "allow", allow: ["*pub.test"] }), { code: "BAD_REQUEST" });
    assert.deepEqual((await sandbox.network.get()).allow, ["pub.test"]);
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
  });
});
