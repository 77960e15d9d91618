// Network policies over the life of sandboxes: forks, branches, snapshots, daemon crashes, limits, hostile guests.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { Sandbox, type NetworkOptions } from "forkd";
import { DNS_OPTIONS, NetDaemon } from "../helpers/net-daemon.ts";
import { probe, PROBES } from "../helpers/net-guest.ts";
import { NetWorld, OUTSIDE } from "../helpers/net-world.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import { PYTHON_IMAGE } from "../helpers/vm.ts";

const missing = await NetWorld.missing();

/** Attacks of root in a guest on the agent's network set-up */
const FIGHT = String.raw`
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, *words):
    attr = ctypes.create_string_buffer(struct.pack("=%dI" % len(words), *words), 128)
    return libc.syscall(321, command, attr, 128), attr.raw
def detach():
    """Detaches every program from the namespace"""
    count, at = 0, 0
    while True:
        result, raw = bpf(31, at, 0)
        if result < 0:
            return count
        at = struct.unpack("=I", raw[4:8])[0]
        fd, _ = bpf(30, at)
        count += bpf(34, fd)[0] == 0
def netlink(kind, flags, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
    return struct.unpack("=i", s.recv(4096)[16:20])[0]
def attr(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
def drop_rules():
    """Takes the rules of both families away"""
    rules = [struct.pack("=BBBBBBBBI", family, 0, 0, 0, 100, 0, 0, 1, 0) for family in (2, 10)]
    return [netlink(33, 0, rule) for rule in rules for _ in range(2)]
def own_route():
    """A default route of its own, through the only device there is"""
    return netlink(24, 0x400, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0) + attr(4, struct.pack("=I", 1)))
def raw_packets():
    """A SYN for a public address as a raw packet, and as a frame on every device"""
    sent = 0
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, socket.inet_aton("192.0.2.2"), socket.inet_aton("203.0.113.10"))
    tcp = struct.pack(">HHIIBBHHH", 4000, 80, 1, 0, 0x50, 2, 1024, 0, 0)
    for device in os.listdir("/sys/class/net"):
        try:
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            s.bind((device, 0x800))
            sent += s.send(b"\xff" * 12 + b"\x08\x00" + ip + tcp) > 0
        except OSError:
            pass
    for kind in (socket.IPPROTO_RAW, socket.IPPROTO_ICMP, socket.IPPROTO_UDP):
        try:
            s = socket.socket(socket.AF_INET, socket.SOCK_RAW, kind)
            sent += s.sendto(ip + tcp, ("203.0.113.10", 0)) > 0
        except OSError:
            pass
    return [sent, os.listdir("/sys/class/net")]
`;

describe("a policy", { skip: missing ?? false }, () => {
  let net: NetDaemon;
  let world: NetWorld;

  before(async () => {
    net = await NetDaemon.start();
    world = net.world;
    await net.makeSnapshot();
  });

  after(async () => net?.[Symbol.asyncDispose]());

  beforeEach(async () => net.beginTest());

  async function forked(source: Sandbox, network?: NetworkOptions): Promise<Sandbox> {
    const [child] = await source.fork(1, { network });
    assert.ok(child);
    return child;
  }

  it("of a snapshot applies to its warm-up and its forks, unless they set another", async () => {
    const { controller } = net.daemon;
    const download = `${PROBES}\npage = get("pub.test")`;
    await controller.createSnapshot("online", {
      image: PYTHON_IMAGE,
      memoryMib: 256,
      warmUp: { kernels: [{ language: "python", code: download }] },
      network: { mode: "allow", allow: ["pub.test"] },
      timeoutMs: patience(40),
    });
    assert.deepEqual((await controller.getSnapshot("online")).network, { mode: "allow", allow: ["pub.test"], egress_limit_bytes: null });
    {
      await using child = await net.sandbox(undefined, "online");
      assert.equal(await probe(child, "page"), "hello");
      assert.deepEqual(child.info.network.mode, "allow");
      // its interpreter has the address already, so it sends no DNS query
      assert.equal(await probe(child, `get("${OUTSIDE.public6}")`), "hello");
      assert.equal(await probe(child, `get("${OUTSIDE.otherPublic}")`), "ConnectionResetError ECONNRESET");
      await using silent = await net.sandbox({ mode: "none" }, "online");
      assert.equal(await probe(silent, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
      await using wide = await net.sandbox({ mode: "open" }, "online");
      assert.equal(await probe(wide, `get("${OUTSIDE.otherPublic}")`), "hello");
    }
    await controller.updateSnapshot("online", { pool: 1 });
    {
      await using pooled = await net.sandbox(undefined, "online");
      assert.equal(await probe(pooled, `get("pub.test")`), "hello");
    }
    await controller.deleteSnapshot("online");
  });

  it("of a running sandbox is inherited by its forks and branches; connections are not", async () => {
    await using source = await net.sandbox({ mode: "allow", allow: ["pub.test", "four.test"], egressLimitBytes: 1_000_000 });
    assert.equal(await probe(source, `hold("a", "pub.test")`), "hello");
    await using child = await forked(source);
    assert.deepEqual(child.info.network, { mode: "allow", allow: ["pub.test", "four.test"], egress_limit_bytes: 1_000_000 });
    assert.equal(await probe(child, `echo("a")`), "ECONNRESET");
    assert.equal(await probe(source, `echo("a")`), "hello");
    world.forget();
    // by the address that its parent resolved, without a DNS query of its own
    assert.equal(await probe(child, `get("${OUTSIDE.public6}")`), "hello");
    assert.equal(await probe(child, `get("four.test")`), "hello");
    await using strict = await forked(source, { mode: "none" });
    assert.equal(await probe(strict, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    await source.network.set({ mode: "none" });
    await using late = await forked(source);
    assert.equal(late.info.network.mode, "none");
    assert.equal(await probe(child, `get("four.test")`), "hello");
  });

  it("survives a killed daemon, and so does the spent part of its limit", async () => {
    const { daemon } = net;
    const sandbox = await net.sandbox({ mode: "allow", allow: ["pub.test"], egressLimitBytes: 10_000_000 });
    const closed = await net.sandbox();
    assert.equal(await probe(sandbox, `hold("a", "pub.test")`), "hello");
    assert.equal(await probe(sandbox, `echo("a", "x" * 90)`), "x".repeat(90));
    const { egress_used_bytes: before } = await sandbox.network.get();
    await daemon.kill9();
    await daemon.up(DNS_OPTIONS);
    const after = await sandbox.network.get();
    assert.deepEqual([after.mode, after.allow, after.egress_limit_bytes], ["allow", ["pub.test"], 10_000_000]);
    assert.ok(after.egress_used_bytes >= before && after.egress_used_bytes < 10_000_000);
    assert.equal(after.connections_open, 0);
    assert.equal(await probe(sandbox, `echo("a")`), "ECONNRESET");
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.otherPublic}")`), "ConnectionResetError ECONNRESET");
    assert.equal(await probe(closed, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    // the changed policy is restored
    await sandbox.network.set({ mode: "none" });
    await closed.network.set({ mode: "open" });
    await daemon.kill9();
    await daemon.up(DNS_OPTIONS);
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    assert.equal(await probe(closed, `get("pub.test")`), "hello");
    await sandbox.kill();
    await closed.kill();
  });

  it("with a limit never sends more than that", async () => {
    await using sandbox = await net.sandbox({ mode: "allow", allow: ["four.test"], egressLimitBytes: 200_000 });
    const sent = `
s = socket.create_connection(("four.test", 9))
total = 0
try:
    while True: total += s.send(b"x" * 1000)
except OSError as e: error = errno.errorcode.get(e.errno)
error`;
    assert.match(String(await probe(sandbox, sent)), /ECONNRESET|EPIPE/);
    const info = await sandbox.network.get();
    assert.deepEqual([info.egress_used_bytes, info.connections_open], [200_000, 0]);
    assert.equal(info.recent[0]?.error, "the egress limit is reached");
    assert.ok(info.bytes_up <= 200_000);
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "ConnectionResetError ECONNRESET");
    await sandbox.network.set({ mode: "allow", allow: ["four.test"], egressLimitBytes: null });
    assert.equal(await probe(sandbox, `get("four.test")`), "hello");
  });

  it("is enforced outside: root in a guest cannot widen it", async () => {
    await using sandbox = await net.sandbox({ mode: "allow", allow: ["pub.test"] });
    await sandbox.eval(FIGHT);
    assert.equal(await probe(sandbox, `get("pub.test")`), "hello");
    world.forget();
    const [sent, devices] = (await probe(sandbox, "raw_packets()")) as [number, string[]];
    assert.ok(sent > 0);
    assert.deepEqual(devices, ["lo"]);
    assert.deepEqual(await probe(sandbox, "drop_rules()"), [0, 0, 0, 0]);
    assert.equal(await probe(sandbox, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    assert.equal(await probe(sandbox, "own_route()"), 0);
    const tried = async (host: string): Promise<string> => String(await probe(sandbox, `get("${host}", 80, "/hello", 1)`));
    assert.doesNotMatch(await tried(OUTSIDE.otherPublic), /hello/);
    assert.ok(Number(await probe(sandbox, "detach()")) > 0);
    assert.doesNotMatch(await tried(OUTSIDE.public), /hello/);
    await sandbox.network.set({ mode: "none" });
    await sandbox.network.set({ mode: "open" });
    // the sandbox may have lost its network, but must not have gained access
    assert.doesNotMatch(await tried(OUTSIDE.private), /hello/);
    assert.deepEqual(world.hits, []);
  });

  it("is shown in the audit log, the metrics and the command line", async () => {
    const sandbox = await net.sandbox({ mode: "allow", allow: ["four.test"] });
    assert.equal(await probe(sandbox, `get("four.test")`), "hello");
    assert.equal(await probe(sandbox, `get("${OUTSIDE.private}")`), "ConnectionResetError ECONNRESET");
    const lines = async (): Promise<Record<string, unknown>[]> => {
      const text = await readFile(join(net.daemon.home.root, "audit.log"), "utf8");
      const all = text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
      return all.filter((line) => line["sandbox"] === sandbox.id && line["connection"] !== undefined);
    };
    await until(async () => (await lines()).length >= 3);
    const [opened, ended, refused] = await lines();
    assert.deepEqual(
      [opened?.["connection"], opened?.["name"], opened?.["ip"], opened?.["port"]],
      ["opened", "four.test", OUTSIDE.public, 80],
    );
    assert.equal(ended?.["connection"], "ended");
    assert.ok(Number(ended?.["bytes_up"]) > 0 && Number(ended?.["bytes_down"]) > 0);
    assert.deepEqual(
      [refused?.["connection"], refused?.["ip"], refused?.["decision"], refused?.["principal"], refused?.["snapshot"]],
      ["refused", OUTSIDE.private, "refused", "local", "net"],
    );
    const metrics = await net.daemon.controller.metrics();
    assert.match(metrics, /forkd_network_connections_total\{result="allowed"\} [1-9]/);
    assert.match(metrics, /forkd_network_connections_total\{result="refused"\} [1-9]/);
    assert.match(metrics, /forkd_network_bytes_total\{direction="down"\} [1-9]/);
    const shown = await net.daemon.cli(["network", sandbox.id]);
    assert.match(shown.stdout, /^mode +allow\nallow +four\.test/);
    assert.match(shown.stdout, /four\.test \(203\.0\.113\.10:80\) +allowed/);
    assert.match(shown.stdout, /10\.9\.8\.7:80 +refused .*not a public address/);
    const forked = await net.daemon.cli(["fork", "net", "-q", "--allow", "four.test:80", "--egress-limit", "1000000"]);
    const other = await Sandbox.connect(forked.stdout.trim(), { controller: net.daemon.controller });
    assert.deepEqual(other.info.network, { mode: "allow", allow: ["four.test:80"], egress_limit_bytes: 1_000_000 });
    assert.equal(await probe(other, `get("four.test")`), "hello");
    assert.equal((await net.daemon.cli(["network", other.id, "--set", "none"])).code, 0);
    assert.equal(await probe(other, `get("${OUTSIDE.public}")`), "OSError ENETUNREACH");
    await sandbox.kill();
    await other.kill();
  });
});
