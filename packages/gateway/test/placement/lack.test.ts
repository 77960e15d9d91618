// What a node lacks for a fork.

import assert from "node:assert/strict";
import { test } from "node:test";
import { lackOf, roomFor } from "../../src/placement/lack.ts";
import { node, request } from "./made.ts";

import type { EngineNeeds, ForkRequest, NodeFacts } from "../../src/placement/facts.ts";

const needs = (given: Partial<EngineNeeds>): ForkRequest => {
  const { snapshot, ...rest } = request();
  return { ...rest, snapshot: { ...snapshot, engine: { ...snapshot.engine, ...given } } };
};

const CASES: readonly [name: string, ForkRequest, Partial<NodeFacts>, kind: string, what: RegExp][] = [
  ["the project's policy", request({ allowedNodes: new Set(["b"]) }), {}, "policy", /not allowed/],
  ["a cordoned node", request(), { cordoned: true }, "cordon", /cordoned/],
  ["places", request(), { places: { used: 100, max: 100 } }, "room", /no free place/],
  ["memory", request(), { memory: { freeMiB: 511, totalMiB: 1000 } }, "room", /512 MiB of memory/],
  ["disk for a fetch", request(), { disk: { freeMiB: 599 } }, "room", /600 MiB of disk/],
  ["disk of a holder", request(), { disk: { freeMiB: 0 }, holds: new Map([["snap", "disk"]]) }, "room", /disk space/],
  ["another engine", needs({ name: "other" }), {}, "engine", /engine engine instead of other/],
  ["an older engine", needs({ version: "10.1.0" }), {}, "engine", /older than version 10\.1\.0/],
  ["an engine that must be the same", needs({ version: "9.0.0", exactVersion: true }), {}, "engine", /other than version 9\.0\.0/],
  ["KVM", request(), { accelerator: "tcg" }, "engine", /no KVM/],
  ["the vendor of the processor", needs({ cpu: { vendor: "AuthenticAMD", features: [] } }), {}, "engine", /AuthenticAMD/],
  ["a feature of the processor", needs({ cpu: { vendor: "GenuineIntel", features: ["avx512f"] } }), {}, "engine", /avx512f/],
  ["isolation", { ...needs({ accelerator: "tcg" }), isolation: "kvm" }, { allowsEmulation: true }, "isolation", /made without KVM/],
  ["emulation", needs({ accelerator: "tcg" }), {}, "isolation", /no emulated VMs/],
];

for (const [name, fork, facts, kind, what] of CASES)
  test(`a node that lacks it is refused: ${name}`, () => {
    const lack = lackOf(fork, node("a", facts), true);
    assert.equal(lack?.kind, kind);
    assert.match(lack?.what ?? "", what);
  });

test("a node with everything lacks nothing, and a newer patch or minor version fits", () => {
  assert.equal(lackOf(request(), node("a"), true), undefined);
  assert.equal(lackOf(needs({ version: "10.0.9" }), node("a"), true), undefined);
  assert.equal(lackOf(needs({ version: "9.2.0" }), node("a"), true), undefined);
});

test("a node whose processor is unknown decides itself", () => {
  assert.equal(lackOf(request(), node("a", { cpu: null }), true), undefined);
});

test("a snapshot that cannot be fetched fits only its holders and the source", () => {
  assert.equal(lackOf(request(), node("a"), false)?.kind, "snapshot");
  assert.equal(lackOf(request(), node("a", { held: "disk" }), false), undefined);
  assert.equal(lackOf(request({ sourceNode: "a" }), node("a"), false), undefined);
});

test("a node with the base needs disk space for the delta only", () => {
  const delta = request({ snapshot: { base: "below", deltaMiB: 40 } });
  const small = { disk: { freeMiB: 100 } };
  assert.equal(lackOf(delta, node("a", small), true)?.kind, "room");
  assert.equal(lackOf(delta, node("a", { ...small, holds: new Map([["below", "disk"]]) }), true), undefined);
});

test("a node that receives the snapshot already has the space for it", () => {
  assert.equal(lackOf(request(), node("a", { disk: { freeMiB: 1 }, fetching: new Set(["snap"]) }), true), undefined);
});

test("room is limited by places, memory and the request", () => {
  assert.equal(roomFor(request({ count: 8 }), node("a")), 8);
  assert.equal(roomFor(request({ count: 8 }), node("a", { used: 95 })), 5);
  assert.equal(roomFor(request({ count: 8 }), node("a", { memory: { freeMiB: 1100, totalMiB: 9000 } })), 2);
  assert.equal(roomFor(request({ count: 8 }), node("a", { places: { used: 101, max: 100 } })), 0);
});
