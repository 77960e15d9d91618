// Names: looked up once, remembered for a while, and bounded.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAddress, parseAddress, type Address } from "../../src/net/addresses.ts";
import { TYPE } from "../../src/net/dns.ts";
import { Names } from "../../src/net/names.ts";
import { FakeUpstream } from "./helpers/fake-upstream.ts";

const yes = async (): Promise<boolean> => true;

function ip(text: string): Address {
  const address = parseAddress(text);
  assert.ok(address);
  return address;
}

test("a name is asked for once while its answer is good, by however many", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]] } });
  const names = new Names({ upstream, isRoutable: yes });
  const all = await Promise.all(Array.from({ length: 50 }, async () => names.lookup("a.example", 4)));
  for (const { status, addresses } of all) assert.deepEqual([status, ...addresses.map(formatAddress)], ["ok", "203.0.113.10"]);
  assert.deepEqual(upstream.asked, ["A a.example"]);
});

test("there is no such name, there are no such records, nobody could tell", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]] }, "broken.example": { fails: "ETIMEOUT" } });
  const names = new Names({ upstream, isRoutable: yes });
  assert.equal((await names.lookup("missing.example", 4)).status, "missing");
  assert.deepEqual({ ...(await names.lookup("a.example", 6)), ttl: 0 }, { status: "ok", addresses: [], ttl: 0 });
  assert.equal((await names.lookup("broken.example", 4)).status, "failed");
  await names.lookup("broken.example", 4);
  // a failure is not kept
  assert.equal(upstream.asked.filter((what) => what.includes("broken")).length, 2);
  assert.equal(await names.records("broken.example", TYPE.TXT), null);
  assert.deepEqual(await names.records("missing.example", TYPE.MX), []);
});

test("an address that a name led to is still one of it when the name has moved on", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"], ["203.0.113.11"]], ttl: 0 } });
  const names = new Names({ upstream, isRoutable: yes });
  assert.equal(await names.leadsTo("a.example", ip("203.0.113.10")), true);
  assert.equal(names.knows("a.example", ip("203.0.113.11")), false);
  assert.equal(await names.leadsTo("a.example", ip("203.0.113.99")), false);
  assert.equal(names.knows("a.example", ip("203.0.113.10")), true);
  assert.equal(names.knows("b.example", ip("203.0.113.10")), false);
});

test("addresses that this host has no way to are not given", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]], AAAA: [["2001:db8::1"]] } });
  const names = new Names({ upstream, isRoutable: async ({ family }) => family === 4 });
  assert.equal((await names.lookup("a.example", 4)).addresses.length, 1);
  assert.deepEqual((await names.lookup("a.example", 6)).addresses, []);
});

test("lookups under way are bounded", async () => {
  const upstream = new FakeUpstream({});
  const release = upstream.hold();
  const names = new Names({ upstream, isRoutable: yes });
  const all = Array.from({ length: 600 }, async (_, i) => names.lookup(`n${i}.example`, 4));
  release();
  const failed = (await Promise.all(all)).filter(({ status }) => status === "failed");
  assert.equal(failed.length, 600 - 512);
});
