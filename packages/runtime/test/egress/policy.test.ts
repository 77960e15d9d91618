// Rules and their decisions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAddress } from "../../src/egress/addresses.ts";
import { denyProblem, inwardRules, normalName, ruleProblem, Rules, type NetworkPolicy } from "../../src/egress/policy.ts";

type Asked = { ip: string; port?: number; names?: string[]; isOwn?: boolean };

function decide(mode: NetworkPolicy["mode"], allow: string[], { ip, port = 443, names = [], isOwn = false }: Asked): boolean {
  const address = parseAddress(ip);
  assert.ok(address);
  return new Rules({ mode, allow }).decide({ address, port, names, isOwn }).allowed;
}

/** Rule, request, whether it is allowed */
const ALLOW: [string[], Asked, boolean][] = [
  [[], { ip: "1.1.1.1" }, false],
  [["1.1.1.1"], { ip: "1.1.1.1" }, true],
  [["1.1.1.1"], { ip: "1.1.1.2" }, false],
  [["1.1.1.1:443"], { ip: "1.1.1.1" }, true],
  [["1.1.1.1:80"], { ip: "1.1.1.1" }, false],
  [["1.1.1.1:80,443"], { ip: "1.1.1.1" }, true],
  [["1.1.1.1:80,400-500"], { ip: "1.1.1.1" }, true],
  [["1.1.1.1:80,444-500"], { ip: "1.1.1.1" }, false],
  [["1.1.1.1"], { ip: "::ffff:1.1.1.1" }, true],
  [["::ffff:1.1.1.1"], { ip: "1.1.1.1" }, true],
  [["8.8.0.0/16"], { ip: "8.8.4.4" }, true],
  [["2001:db8::/32"], { ip: "2001:db8::5" }, true],
  [["[2001:db8::5]:443"], { ip: "2001:db8::5" }, true],
  [["[2001:db8::5]:80"], { ip: "2001:db8::5" }, false],
  [["[2001:db8::/32]:443"], { ip: "2001:db8::5" }, true],
  // names: only those that were resolved to the address
  [["example.org"], { ip: "1.1.1.1" }, false],
  [["example.org"], { ip: "1.1.1.1", names: ["example.org"] }, true],
  [["EXAMPLE.org."], { ip: "1.1.1.1", names: ["example.org"] }, true],
  [["bücher.example"], { ip: "1.1.1.1", names: ["xn--bcher-kva.example"] }, true],
  [["example.org"], { ip: "1.1.1.1", names: ["www.example.org"] }, false],
  [["example.org"], { ip: "1.1.1.1", names: ["badexample.org"] }, false],
  [["*.example.org"], { ip: "1.1.1.1", names: ["www.example.org"] }, true],
  [["*.example.org"], { ip: "1.1.1.1", names: ["a.b.example.org"] }, true],
  [["*.example.org"], { ip: "1.1.1.1", names: ["example.org"] }, false],
  [["*.example.org"], { ip: "1.1.1.1", names: ["badexample.org"] }, false],
  [["*.example.org:80"], { ip: "1.1.1.1", names: ["www.example.org"] }, false],
  [["*"], { ip: "1.1.1.1", names: ["anything.example"] }, true],
  [["*:443"], { ip: "1.1.1.1", names: ["anything.example"] }, true],
  [["*:80"], { ip: "1.1.1.1", names: ["anything.example"] }, false],
  [["*"], { ip: "1.1.1.1" }, false],
  [["example.org"], { ip: "1.1.1.1", names: ["other.example", "example.org"] }, true],
  // a name never allows a non-public address
  [["example.org"], { ip: "10.0.0.1", names: ["example.org"] }, false],
  [["*"], { ip: "169.254.169.254", names: ["example.org"] }, false],
  [["*"], { ip: "127.0.0.1", names: ["example.org"] }, false],
  [["*"], { ip: "64:ff9b::a00:1", names: ["example.org"] }, false],
  [["*"], { ip: "1.1.1.1", names: ["example.org"], isOwn: true }, false],
  // non-public ranges need an explicit rule
  [["10.0.0.1"], { ip: "10.0.0.1" }, true],
  [["10.0.0.0/8"], { ip: "10.0.0.1" }, true],
  [["10.1.0.0/16"], { ip: "10.1.2.3" }, true],
  [["10.0.0.0/8"], { ip: "::ffff:10.0.0.1" }, true],
  [["0.0.0.0/0"], { ip: "8.8.8.8" }, true],
  [["0.0.0.0/0"], { ip: "10.0.0.1" }, false],
  [["8.0.0.0/5"], { ip: "10.0.0.1" }, false],
  [["::/0"], { ip: "fd00::1" }, false],
  [["fd00::/8"], { ip: "fd00::1" }, true],
  [["fc00::/7"], { ip: "fd00::1" }, true],
  [["::/0"], { ip: "64:ff9b::a00:1" }, false],
  [["64:ff9b::/96"], { ip: "64:ff9b::a00:1" }, false],
  [["64:ff9b::a00:0/104"], { ip: "64:ff9b::a00:1" }, true],
  [["10.0.0.0/8"], { ip: "64:ff9b::a00:1" }, false],
  [["64:ff9b::/96"], { ip: "64:ff9b::808:808" }, true],
  [["169.254.169.254"], { ip: "169.254.169.254" }, true],
  [["168.0.0.0/8"], { ip: "168.63.129.16" }, false],
  [["168.63.129.16"], { ip: "168.63.129.16" }, true],
  // the host itself: only by its exact address
  [["127.0.0.0/8"], { ip: "127.0.0.1" }, false],
  [["127.0.0.1"], { ip: "127.0.0.1" }, true],
  [["127.0.0.1:443"], { ip: "127.0.0.1", isOwn: true }, true],
  [["127.0.0.1:80"], { ip: "127.0.0.1" }, false],
  [["::1"], { ip: "::1" }, true],
  [["203.0.113.0/24"], { ip: "203.0.113.5", isOwn: true }, false],
  [["203.0.113.5"], { ip: "203.0.113.5", isOwn: true }, true],
  [["10.0.0.0/8"], { ip: "10.0.0.5", isOwn: true }, false],
  [["10.0.0.5:443"], { ip: "10.0.0.5", isOwn: true }, true],
];

test(`mode allow: ${ALLOW.length} decisions`, () => {
  for (const [allow, asked, expected] of ALLOW)
    assert.equal(decide("allow", allow, asked), expected, `${allow.join(" ")} → ${JSON.stringify(asked)}`);
});

test("mode none allows nothing, with any rules", () => {
  for (const [allow, asked] of ALLOW) assert.equal(decide("none", allow, asked), false);
  assert.equal(new Rules({ mode: "none", allow: ["*"] }).allowsName("example.org"), false);
  assert.deepEqual(new Rules({ mode: "none", allow: ["*"] }).candidates(["example.org"], 443), []);
});

test("mode open allows public addresses, and others by rules", () => {
  assert.equal(decide("open", [], { ip: "1.1.1.1", port: 8025 }), true);
  assert.equal(decide("open", [], { ip: "2001:db8::1" }), true);
  for (const ip of [
    "10.0.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "fd00::1",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "224.0.0.1",
    "0.0.0.0",
  ]) {
    assert.equal(decide("open", [], { ip }), false, ip);
    assert.equal(decide("open", [], { ip, names: ["example.org"] }), false, ip);
  }
  assert.equal(decide("open", [], { ip: "1.1.1.1", isOwn: true }), false);
  assert.equal(decide("open", ["10.0.0.0/8:443"], { ip: "10.0.0.1" }), true);
  assert.equal(decide("open", ["10.0.0.0/8:80"], { ip: "10.0.0.1" }), false);
});

test("mode open refuses port 25, unless a rule allows it", () => {
  for (const ip of ["1.1.1.1", "2001:db8::1"]) assert.equal(decide("open", [], { ip, port: 25 }), false);
  for (const rule of ["1.1.1.1:25", "1.1.1.0/24", "mail.example"])
    assert.equal(decide("open", [rule], { ip: "1.1.1.1", port: 25, names: ["mail.example"] }), true, rule);
});

test("mode open resolves no name of a private network, unless a rule allows it", () => {
  const open = new Rules({ mode: "open", allow: ["ldap.corp", "*.lan"] });
  for (const name of ["vault.internal", "a.b.local", "router.home.arpa", "wpad", "x.corp", "db.intranet"])
    assert.equal(open.allowsName(name), false, name);
  for (const name of ["ldap.corp", "nas.lan", "example.org", "internal.example", "locality.museum"])
    assert.equal(open.allowsName(name), true, name);
});

test("mode open refuses denied addresses, unless a rule allows them", () => {
  const opened = (deny: string[], asked: Asked, allow: string[] = []): boolean => {
    const address = parseAddress(asked.ip);
    assert.ok(address);
    const { port = 443, names = [] } = asked;
    return new Rules({ mode: "open", allow, deny }).decide({ address, port, names, isOwn: false }).allowed;
  };
  assert.equal(opened(["1.1.1.1"], { ip: "1.1.1.1" }), false);
  assert.equal(opened(["1.1.1.1"], { ip: "1.1.1.2" }), true);
  assert.equal(opened(["1.1.1.0/24"], { ip: "::ffff:1.1.1.9" }), false);
  assert.equal(opened(["1.1.1.0/24"], { ip: "64:ff9b::101:109" }), false, "the translated address counts");
  assert.equal(opened(["2001:db8::/32"], { ip: "2001:db8::1" }), false);
  assert.equal(opened(["1.1.1.1:22"], { ip: "1.1.1.1", port: 22 }), false);
  assert.equal(opened(["1.1.1.1:22"], { ip: "1.1.1.1" }), true);
  assert.equal(opened(["1.0.0.0/8"], { ip: "1.1.1.1" }, ["1.1.1.1"]), true);
  assert.equal(opened(["1.0.0.0/8"], { ip: "1.1.1.1", names: ["a.example"] }, ["a.example"]), true);
  const address = parseAddress("1.1.1.1");
  assert.ok(address);
  const anyPort = (deny: string): boolean =>
    new Rules({ mode: "open", allow: [], deny: [deny] }).decide({ address, port: undefined, names: [], isOwn: false }).allowed;
  assert.deepEqual([anyPort("1.1.1.1"), anyPort("1.1.1.1:25")], [false, true], "a name is resolved while one of its ports is allowed");
  assert.match(denyProblem("example.org") ?? "", /only addresses/);
  assert.match(denyProblem("1.1.1.1/8") ?? "", /excess bits/);
  assert.equal(denyProblem("1.1.1.0/24:25"), undefined);
});

test("a name may be resolved when at least one port of it is allowed", () => {
  const rules = new Rules({ mode: "allow", allow: ["*.example.org:443", "host.example", "10.0.0.0/8"] });
  for (const name of ["a.example.org", "host.example"]) assert.equal(rules.allowsName(name), true, name);
  for (const name of ["example.org", "other.example", "10.0.0.1"]) assert.equal(rules.allowsName(name), false, name);
  assert.equal(new Rules({ mode: "open", allow: [] }).allowsName("any.example"), true);
});

test("rules for the host's own network are detected", () => {
  const isOwn = ({ value }: { value: bigint }): boolean => value === 0xcb007105n; // 203.0.113.5
  const inward = [
    "10.0.0.0/8",
    "10.1.2.3:80",
    "127.0.0.1",
    "[::1]:80",
    "169.254.169.254",
    "fd00::/8",
    "64:ff9b::a00:1",
    "2002:a00::/24",
    "203.0.113.5:80",
  ];
  const outward = ["example.org", "*", "0.0.0.0/0", "::/0", "8.0.0.0/5", "1.1.1.1", "203.0.113.0/24", "2001:db8::/32", "64:ff9b::/96"];
  assert.deepEqual(inwardRules([...outward, ...inward], isOwn), inward);
});

test("an invalid rule is refused, with the reason", () => {
  const bad = [
    "",
    " ",
    "https://example.org",
    "example.org/path",
    "example..org",
    ".example.org",
    "-a.example",
    "a-.example",
    "a b.example",
    "*example.org",
    "www.*.org",
    "*.",
    "*.*",
    "**",
    "*.10",
    "10.*",
    "exa_mple!.org",
    "a".repeat(64),
    `${"a.".repeat(127)}ab`,
    "127.1",
    "0x7f.0.0.1",
    "2130706433",
    "0177.0.0.1",
    "1.2.3",
    "1.2.3.4.5",
    "256.1.1.1",
    "example.0x7f",
    "10.0.0.1/8",
    "10.0.0.0/33",
    "fd00::1/8",
    "::1%eth0",
    "[::1",
    "::1]",
    "[10.0.0.1]:80",
    "[example.org]:80",
    "fd00::1:g",
    "example.org:",
    "example.org:0",
    "example.org:65536",
    "example.org:80-",
    "example.org:90-80",
    "example.org:http",
    "example.org:80,",
    "example.org:80:90",
    "1.2.3.4:",
    "[::1]:0",
    "[::1]80",
    "user@example.org",
    "example.org:+80",
    "example.org: 80",
  ];
  for (const text of bad) {
    assert.equal(typeof ruleProblem(text), "string", text);
    assert.throws(() => new Rules({ mode: "allow", allow: [text] }), { code: "BAD_REQUEST" }, text);
  }
  const good = [
    "example.org",
    "EXAMPLE.ORG.",
    "*.example.org",
    "*",
    "_srv._tcp.example.org:1",
    "xn--bcher-kva.example",
    "localhost",
    "a",
    "1a.example",
  ];
  for (const text of [...good, "fd00::/8", "::1", "[::1]:80", "[fd00::/8]:80-90,100", "1.2.3.4:65535", "*:443", "münchen.example:443"])
    assert.equal(ruleProblem(text), undefined, text);
});

test("names are compared in one form", () => {
  assert.equal(normalName("WWW.Example.ORG."), "www.example.org");
  assert.equal(normalName("bücher.example"), "xn--bcher-kva.example");
  assert.equal(normalName("BÜCHER.example"), "xn--bcher-kva.example");
  for (const bad of [
    "",
    ".",
    "..",
    "a..b",
    "a.b..",
    "1.2.3.4",
    "1.2.3.4.",
    "0x1",
    "a\0.example",
    "a example",
    "%31.example",
    "a/b",
    "?",
    "-",
    "_-",
  ])
    assert.equal(normalName(bad), undefined, JSON.stringify(bad));
});
