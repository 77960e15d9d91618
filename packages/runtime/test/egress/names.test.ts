// Names: resolved once, remembered for a while, and bounded.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAddress, parseAddress, type Address } from "../../src/egress/addresses.ts";
import { TYPE } from "../../src/egress/dns.ts";
import { Names } from "../../src/egress/names.ts";
import { FakeUpstream } from "./helpers/fake-upstream.ts";

const ME = "sb-me";
const OTHER = "sb-other";
const yes = async (): Promise<boolean> => true;

function ip(text: string): Address {
  const address = parseAddress(text);
  assert.ok(address);
  return address;
}

test("a name is queried once while its answer is valid, for any number of callers", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]] } });
  const names = new Names({ upstream, isRoutable: yes });
  const all = await Promise.all(Array.from({ length: 50 }, async () => names.lookup(ME, "a.example", 4)));
  for (const { status, addresses } of all) assert.deepEqual([status, ...addresses.map(formatAddress)], ["ok", "203.0.113.10"]);
  assert.deepEqual(upstream.asked, ["A a.example"]);
});

test("missing names, missing records and failed queries are told apart", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]] }, "broken.example": { fails: "ETIMEOUT" } });
  const names = new Names({ upstream, isRoutable: yes });
  assert.equal((await names.lookup(ME, "missing.example", 4)).status, "missing");
  assert.deepEqual({ ...(await names.lookup(ME, "a.example", 6)), ttl: 0 }, { status: "ok", addresses: [], ttl: 0 });
  assert.equal((await names.lookup(ME, "broken.example", 4)).status, "failed");
  await names.lookup(ME, "broken.example", 4);
  // a failure is not cached
  assert.equal(upstream.asked.filter((what) => what.includes("broken")).length, 2);
  assert.equal(await names.records(ME, "broken.example", TYPE.TXT), null);
  assert.deepEqual(await names.records(ME, "missing.example", TYPE.MX), []);
});

test("an earlier address of a name stays valid for a while", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"], ["203.0.113.11"]], ttl: 0 } });
  const names = new Names({ upstream, isRoutable: yes });
  assert.equal(await names.leadsTo(ME, "a.example", ip("203.0.113.10")), true);
  assert.equal(names.knows(ME, "a.example", ip("203.0.113.11")), false);
  assert.equal(await names.leadsTo(ME, "a.example", ip("203.0.113.99")), false);
  assert.equal(names.knows(ME, "a.example", ip("203.0.113.10")), true);
  assert.equal(names.knows(ME, "b.example", ip("203.0.113.10")), false);
});

test("lookups of one sandbox do not displace remembered names of another", async () => {
  const many = Array.from({ length: 12_000 }, (_, i) => [`n${i}.example`, { A: [["203.0.113.11"]] }] as const);
  const upstream = new FakeUpstream({ "cdn.example": { A: [["203.0.113.10"], ["203.0.113.12"]], ttl: 0 }, ...Object.fromEntries(many) });
  const names = new Names({ upstream, isRoutable: yes });
  await names.lookup(ME, "cdn.example", 4);
  for (const [name] of many) await names.lookup(OTHER, name, 4);
  assert.equal(names.knows(ME, "cdn.example", ip("203.0.113.10")), true);
  assert.equal(names.knows(OTHER, "n0.example", ip("203.0.113.11")), false, "its own memory is bounded");
  assert.equal(names.knows(OTHER, "n11999.example", ip("203.0.113.11")), true);
});

test("a fork can use names that its source resolved", async () => {
  const upstream = new FakeUpstream({ "cdn.example": { A: [["203.0.113.10"], ["203.0.113.12"]], ttl: 0 } });
  const names = new Names({ upstream, isRoutable: yes });
  await names.lookup(ME, "cdn.example", 4);
  assert.equal(names.knows(OTHER, "cdn.example", ip("203.0.113.10")), true);
});

test("addresses without a route are left out", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]], AAAA: [["2001:db8::1"]] } });
  const names = new Names({ upstream, isRoutable: async ({ family }) => family === 4 });
  assert.equal((await names.lookup(ME, "a.example", 4)).addresses.length, 1);
  assert.deepEqual((await names.lookup(ME, "a.example", 6)).addresses, []);
});

test("concurrent lookups are bounded per sandbox and in all; each sandbox has some guaranteed, and others wait", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]], TXT: ["text"] } });
  const release = upstream.hold();
  const names = new Names({ upstream, isRoutable: yes });
  const floods = Array.from({ length: 6 }, async (_, owner) =>
    Promise.all(Array.from({ length: 200 }, async (__, at) => names.lookup(`sb-${owner}`, `n${owner}-${at}.example`, 4))),
  );
  // eight of each are guaranteed, and 512 places are shared
  assert.equal(upstream.asked.length, 6 * 8 + 512);
  const mine = [names.lookup(ME, "a.example", 4), names.records(ME, "a.example", TYPE.TXT)];
  assert.equal(upstream.asked.length, 6 * 8 + 512 + 2);
  release();
  const refused = (await Promise.all(floods)).map((all) => all.filter(({ status }) => status === "failed").length);
  assert.deepEqual(refused, [72, 72, 72, 72, 72, 72]);
  const [lookup, text] = await Promise.all(mine);
  assert.equal(lookup && "status" in lookup && lookup.status, "ok");
  assert.ok(Array.isArray(text) && text.length === 1);
  // lookups are returned
  await Promise.all(Array.from({ length: 128 }, async (_, at) => names.lookup("sb-0", `later${at}.example`, 4)));
  assert.equal(upstream.asked.filter((what) => what.includes("later")).length, 128);
});

test("groups take turns: one with many waiting lookups delays another by one turn", async () => {
  const upstream = new FakeUpstream({});
  const release = upstream.hold();
  const names = new Names({ upstream, isRoutable: yes, groupOf: (owner) => owner.slice(0, 1) });
  const ask = async (owner: string, n: number): Promise<unknown> =>
    Promise.all(Array.from({ length: n }, async (_, at) => names.lookup(owner, `${owner}-${at}.example`, 4)));
  const floods = Array.from({ length: 6 }, async (_, at) => ask(`a${at}`, 128));
  const other = ask("b", 12);
  release();
  await Promise.all([...floods, other]);
  const waited = upstream.asked.slice(6 * 8 + 512 + 8);
  const places = waited.flatMap((what, at) => (what.includes("b-") ? [at] : []));
  assert.equal(places.length, 4);
  assert.ok(Math.max(...places) <= 8, `the other group's lookups were at ${places.join(", ")}`);
});

test("a refusal for one sandbox is not cached for another", async () => {
  const upstream = new FakeUpstream({ "a.example": { A: [["203.0.113.10"]] } });
  const release = upstream.hold();
  const names = new Names({ upstream, isRoutable: yes });
  const flood = Array.from({ length: 128 }, async (_, at) => names.lookup(OTHER, `n${at}.example`, 4));
  const [refused, mine] = [names.lookup(OTHER, "a.example", 4), names.lookup(ME, "a.example", 4)];
  release();
  assert.deepEqual([(await refused).status, (await mine).status], ["failed", "ok"]);
  await Promise.all(flood);
});
