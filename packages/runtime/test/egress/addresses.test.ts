// Addresses and ranges: strict parsing, and detection of every non-public range.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAddress, formatRange, isInside, parseAddress, parseRange, specialRangeOf } from "../../src/egress/addresses.ts";

function kindOf(text: string): string {
  const address = parseAddress(text);
  assert.ok(address, `${text} is an address`);
  return specialRangeOf(address)?.kind ?? "public";
}

const KINDS: Record<string, string[]> = {
  unspecified: ["0.0.0.0", "0.1.2.3", "0.255.255.255", "::", "::ffff:0.0.0.0", "64:ff9b::", "64:ff9b::0.1.2.3"],
  loopback: ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::127.0.0.1", "64:ff9b::7f00:1"],
  "link-local": ["169.254.0.1", "169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "fe80::1", "febf:ffff::1"],
  metadata: ["168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"],
  private: [
    "10.0.0.0",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "::ffff:10.1.2.3",
    "::ffff:c0a8:1",
    "64:ff9b::10.1.2.3",
    "64:ff9b::ac10:1",
    "64:ff9b::192.168.1.1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff:ffff::1",
    "fec0::1",
  ],
  carrier: ["100.64.0.1", "100.100.100.200", "100.127.255.255", "::ffff:100.64.0.1", "64:ff9b::6440:1"],
  protocol: ["192.0.0.1", "192.0.0.192", "192.88.99.1", "100::1", "5f00::1"],
  benchmarking: ["198.18.0.1", "198.19.255.255", "2001:2::1", "::ffff:198.18.0.1", "64:ff9b::198.18.0.1"],
  multicast: ["224.0.0.1", "239.255.255.255", "ff02::1", "::ffff:224.0.0.1", "64:ff9b::e000:1"],
  reserved: ["240.0.0.1", "255.255.255.255", "::ffff:255.255.255.255", "64:ff9b::ffff:ffff"],
  translated: ["::1.2.3.4", "::7f00:1", "::ffff:0:1.2.3.4", "64:ff9b:1::1", "64:ff9b:1:ffff::a00:1"],
  tunnel: [
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001::1",
    "2001:10::1",
    "2001:20::1",
  ],
  public: [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "203.0.113.10",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2001:db8::10",
    "2001:4860:4860::8888",
    "2606:4700::1",
    "2003::1",
    "fbff::1",
  ],
};

for (const [kind, list] of Object.entries(KINDS)) {
  test(`${kind}: ${list.length} addresses`, () => {
    for (const text of list) assert.equal(kindOf(text), kind, text);
  });
}

test("only one notation of IPv4 addresses is accepted", () => {
  const others = [
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.0.0.1",
    "0x7f000001",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    " 127.0.0.1",
    "127.0.0.256",
  ];
  for (const text of [...others, "１２７.0.0.1", "fe80::1%eth0", "::1%1", "[::1]", "1::2::3", "::g", "", "localhost"])
    assert.equal(parseAddress(text), undefined, text);
});

test("addresses are formatted in one way", () => {
  const ways: [string, string[]][] = [
    ["10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3", "::FFFF:a01:203", "0:0:0:0:0:ffff:0a01:0203"]],
    ["2001:db8::10", ["2001:db8::10", "2001:0DB8:0:0:0:0:0:0010", "2001:db8:0::0:10"]],
    ["::", ["::", "0:0:0:0:0:0:0:0"]],
    ["1::", ["1::", "1:0:0:0:0:0:0:0"]],
    ["::1", ["::1", "0::1"]],
    ["1:0:2::3", ["1:0:2:0:0:0:0:3"]],
    ["1:2:3:4:5:6:7:8", ["1:2:3:4:5:6:7:8"]],
    ["64:ff9b::a09:807", ["64:ff9b::10.9.8.7"]],
  ];
  for (const [canonical, all] of ways) {
    for (const text of all) {
      const address = parseAddress(text);
      assert.ok(address, text);
      assert.equal(formatAddress(address), canonical, text);
    }
  }
});

test("ranges", () => {
  const good: [string, string][] = [
    ["10.0.0.0/8", "10.0.0.0/8"],
    ["1.2.3.4", "1.2.3.4"],
    ["1.2.3.4/32", "1.2.3.4"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["::/0", "::/0"],
    ["fd00::/8", "fd00::/8"],
    ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
    ["2001:db8::1/128", "2001:db8::1"],
  ];
  for (const [text, canonical] of good) {
    const range = parseRange(text);
    assert.ok(range, text);
    assert.equal(formatRange(range), canonical);
  }
  for (const bad of [
    "10.0.0.1/8",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "10.0.0.0/8/8",
    "::/129",
    "::ffff:10.0.0.0/8",
    "fd00::1/8",
    "x/8",
    "/8",
  ])
    assert.equal(parseRange(bad), undefined, bad);
});

test("containment of ranges", () => {
  const range = (text: string): NonNullable<ReturnType<typeof parseRange>> => {
    const found = parseRange(text);
    assert.ok(found);
    return found;
  };
  assert.ok(isInside(range("10.1.0.0/16"), range("10.0.0.0/8")));
  assert.ok(isInside(range("10.1.2.3"), range("0.0.0.0/0")));
  assert.ok(!isInside(range("10.0.0.0/7"), range("10.0.0.0/8")));
  assert.ok(!isInside(range("11.0.0.0/8"), range("10.0.0.0/8")));
  assert.ok(!isInside(range("10.0.0.0/8"), range("::/0")));
  assert.ok(!isInside(range("fd00::1"), range("0.0.0.0/0")));
});
