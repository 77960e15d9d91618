// Which nodes are asked for a fork, and in which order.

import assert from "node:assert/strict";
import { test } from "node:test";
import { afterSending, CROWDED, fullness } from "../../src/placement/fullness.ts";
import { lackOf } from "../../src/placement/lack.ts";
import { place, type Placement } from "../../src/placement/place.ts";
import { node, request, seeded } from "./made.ts";

import type { ForkRequest, NodeFacts, Random } from "../../src/placement/facts.ts";

const SEEDS = Array.from({ length: 300 }, (_, seed) => seed);

function placed(fork: ForkRequest, nodes: readonly NodeFacts[], random: Random = seeded(1)): Placement {
  const result = place(fork, nodes, random);
  assert.ok("candidates" in result, "refused");
  return result;
}

const codes = ({ candidates }: Placement): string[] => candidates.map((candidate) => candidate.node);

test("warm nodes come before nodes with the snapshot on disk, and these before nodes that fetch it", () => {
  const nodes = [node("f"), node("d", { held: "disk" }), node("w", { held: "warm", used: 50 })];
  for (const seed of SEEDS) {
    const { candidates } = placed(request(), nodes, seeded(seed));
    assert.deepEqual(
      candidates.map(({ node: code, tier }) => [code, tier]),
      [
        ["w", "warm"],
        ["d", "disk"],
        ["f", "fetch"],
      ],
    );
  }
});

test("a node that is receiving the snapshot comes before one that would begin to", () => {
  const nodes = [node("f"), node("c", { used: 40, fetching: new Set(["snap"]) })];
  assert.deepEqual(codes(placed(request(), nodes)), ["c", "f"]);
});

test("an index of the holders leads to the same tiers as a look at all nodes", () => {
  const holders = [node("w", { held: "warm" }), node("d", { held: "disk" })];
  const nodes = [node("f"), ...holders];
  assert.deepEqual(place(request(), nodes, seeded(1), { holders }), place(request(), nodes, seeded(1)));
});

test("in a large full cluster the last node with room is found", () => {
  const nodes = Array.from({ length: 1000 }, (_, at) => node(`n${at}`, { used: at === 700 ? 99 : 100 }));
  assert.deepEqual(codes(placed(request(), nodes)), ["n700"]);
});

test("a node with the base comes before one that fetches everything", () => {
  const nodes = [node("f"), node("b", { holds: new Map([["below", "disk"]]) })];
  assert.deepEqual(codes(placed(request({ snapshot: { base: "below" } }), nodes)), ["b", "f"]);
});

test("the emptier of two holders is asked first", () => {
  const nodes = [node("full", { held: "warm", used: 60 }), node("empty", { held: "warm", used: 10 })];
  for (const seed of SEEDS) assert.deepEqual(codes(placed(request(), nodes, seeded(seed))), ["empty", "full"]);
});

test("processors and memory count as much as places", () => {
  assert.equal(fullness(node("a", { used: 10, load: 0.7 })), 0.7);
  assert.equal(fullness(node("a", { used: 10, memory: { freeMiB: 1000, totalMiB: 10_000 } })), 0.9);
  assert.equal(fullness(node("a", { used: 30 })), 0.3);
});

test("a crowded warm node has no advantage over one with the snapshot on disk", () => {
  const nodes = [node("warm", { held: "warm", used: 100 * CROWDED }), node("disk", { held: "disk", used: 10 })];
  for (const seed of SEEDS) assert.deepEqual(codes(placed(request(), nodes, seeded(seed))), ["disk", "warm"]);
});

test("a fork of a live sandbox goes to its node first, however full, and elsewhere without room", () => {
  const live = request({ sourceNode: "s", snapshot: { id: "new", base: "snap", inRegistry: false } });
  const others = [node("w", { held: "warm" }), node("f")];
  assert.deepEqual(codes(placed(live, [...others, node("s", { used: 99, held: "disk" })])), ["s", "w", "f"]);
  assert.deepEqual(codes(placed(live, [...others, node("s", { used: 100, held: "disk" })])), ["w", "f"]);
  assert.equal(placed(live, [...others, node("s", { used: 99 })]).spreadTo, null);
});

test("children that do not fit on one node are divided among the next", () => {
  const nodes = Array.from({ length: 20 }, (_, at) => node(`n${at}`, { used: 95, held: "disk" }));
  const { candidates } = placed(request({ count: 64 }), nodes);
  assert.ok(candidates.reduce((sum, { room }) => sum + room, 0) >= 64);
  assert.ok(candidates.every(({ room }) => room === 5));
});

test("a request is refused when all nodes together have too little room, with the room of each", () => {
  const result = place(
    request({ count: 11 }),
    [node("a", { used: 95 }), node("b", { used: 95 }), node("c", { cordoned: true })],
    seeded(1),
  );
  assert.ok("lacks" in result);
  assert.deepEqual(
    result.lacks.map(({ node: code, lack }) => [code, lack.what]),
    [
      ["a", "has room for 5 of 11"],
      ["b", "has room for 5 of 11"],
      ["c", "cordoned"],
    ],
  );
});

test("a hot snapshot is fetched to another node before its holders refuse", () => {
  const holders = [node("a", { held: "warm", used: 85 }), node("b", { held: "warm", used: 90 })];
  const empty = node("c", { used: 20 });
  const { candidates, spreadTo } = placed(request(), [...holders, empty]);
  assert.equal(spreadTo, "c");
  assert.notEqual(candidates[0]?.node, "c", "the fork itself does not wait for the transfer");
});

test("no copy is made while a holder is free or a copy is on its way, nor to a crowded or unfit node", () => {
  const crowded = node("a", { held: "warm", used: 90 });
  const spread = (...others: NodeFacts[]): string | null => placed(request(), [crowded, ...others]).spreadTo;
  assert.equal(spread(node("b", { held: "disk", used: 10 }), node("c")), null);
  assert.equal(spread(node("b", { fetching: new Set(["snap"]) }), node("c")), null);
  assert.equal(spread(node("b", { used: 85 })), null);
  assert.equal(spread(node("b", { cordoned: true }), node("c", { accelerator: "tcg" })), null);
});

test("with many crowded holders several copies are made at a time", () => {
  const holders = Array.from({ length: 16 }, (_, at) => node(`h${at}`, { held: "warm", used: 90 }));
  const one = node("x", { fetching: new Set(["snap"]) });
  assert.equal(placed(request(), [...holders, one, node("c")]).spreadTo, "c");
});

test("a node that was sent children counts as fuller before its next report", () => {
  const sent = afterSending(node("a"), request(), 10);
  assert.deepEqual(sent.places, { used: 10, max: 100 });
  assert.equal(sent.memory.freeMiB, 100_000 - 10 * 512);
});

/** A cluster in which each kind of lack occurs */
function anyCluster(random: Random): NodeFacts[] {
  const chance = (share: number): boolean => random() < share;
  return Array.from({ length: 1 + Math.floor(random() * 40) }, (_, at) =>
    node(`n${at}`, {
      used: Math.floor(random() * 101),
      cordoned: chance(0.1),
      accelerator: chance(0.1) ? "tcg" : "kvm",
      engine: { name: chance(0.05) ? "other" : "engine", version: chance(0.1) ? "7.2.0" : "10.0.0" },
      disk: { freeMiB: chance(0.1) ? 0 : 5000 },
      memory: { freeMiB: Math.floor(random() * 3000), totalMiB: 3000 },
      load: random() * 1.2,
      fetching: new Set(chance(0.1) ? ["snap"] : []),
      holds: new Map(chance(0.3) ? [["snap", chance(0.5) ? "warm" : "disk"]] : []),
    }),
  );
}

function anyRequest(random: Random): ForkRequest {
  return request({
    count: 1 + Math.floor(random() * 6),
    sourceNode: random() < 0.2 ? `n${Math.floor(random() * 40)}` : null,
    allowedNodes: random() < 0.2 ? new Set(Array.from({ length: 20 }, (_, at) => `n${at * 2}`)) : null,
    snapshot: { inRegistry: random() < 0.8 },
  });
}

test("in any cluster no candidate lacks anything, none occurs twice, and all children have room", () => {
  const outcomes = { placed: 0, refused: 0 };
  for (const seed of Array.from({ length: 3000 }, (_, at) => at)) {
    const random = seeded(seed);
    const [nodes, fork] = [anyCluster(random), anyRequest(random)];
    const result = place(fork, nodes, random);
    if ("lacks" in result) {
      outcomes.refused++;
      assert.equal(result.lacks.length, nodes.length, `seed ${seed}: each node has its reason`);
      continue;
    }
    outcomes.placed++;
    const chosen = codes(result);
    assert.equal(new Set(chosen).size, chosen.length, `seed ${seed}`);
    for (const code of [...chosen, ...(result.spreadTo === null ? [] : [result.spreadTo])]) {
      const facts = nodes.find((one) => one.code === code);
      assert.ok(facts, `seed ${seed}`);
      assert.equal(lackOf(fork, facts, true), undefined, `seed ${seed}: ${code}`);
    }
    assert.ok(result.candidates.reduce((sum, { room }) => sum + room, 0) >= fork.count, `seed ${seed}`);
    const order = result.candidates.map(({ tier }) => ["source", "warm", "disk", "coming", "base", "fetch"].indexOf(tier));
    assert.deepEqual(
      order,
      order.toSorted((a, b) => a - b),
      `seed ${seed}: the better tier first`,
    );
  }
  assert.ok(outcomes.placed > 500 && outcomes.refused > 100, JSON.stringify(outcomes));
});

test("the same seed makes the same decision, and the facts are not changed", () => {
  for (const seed of SEEDS) {
    const random = seeded(seed);
    const [nodes, fork] = [anyCluster(random), anyRequest(random)];
    const before = structuredClone(nodes);
    assert.deepEqual(place(fork, nodes, seeded(seed)), place(fork, nodes, seeded(seed)));
    assert.deepEqual(nodes, before);
  }
});

test("two random ones keep the load even: the fullest of 100 holders stays near the mean", () => {
  for (const seed of [1, 2, 3]) {
    const random = seeded(seed);
    const nodes = Array.from({ length: 100 }, (_, at) => node(`n${at}`, { held: "disk" }));
    for (let at = 0; at < 5000; at++) {
      const [first] = placed(request({ snapshot: { memoryMiB: 1 } }), nodes, random).candidates;
      const index = nodes.findIndex(({ code }) => code === first?.node);
      const chosen = nodes[index];
      assert.ok(chosen);
      nodes[index] = afterSending(chosen, request({ snapshot: { memoryMiB: 1 } }), 1);
    }
    const most = Math.max(...nodes.map(({ places }) => places.used));
    // one random choice leads to about 50 + 2.5 * sqrt(50) = 68
    assert.ok(most <= 54, `seed ${seed}: ${most} where the mean is 50`);
  }
});
