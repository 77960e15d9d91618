// The error of a fork that no node can take.

import assert from "node:assert/strict";
import { test } from "node:test";
import { place } from "../../src/placement/place.ts";
import { refusalError } from "../../src/placement/refusal.ts";
import { node, request, seeded } from "./made.ts";

import type { ForkRequest, NodeFacts } from "../../src/placement/facts.ts";

function refused(fork: ForkRequest, nodes: readonly NodeFacts[]): ReturnType<typeof refusalError> {
  const result = place(fork, nodes, seeded(1));
  assert.ok("lacks" in result);
  return refusalError("python", result);
}

test("the error says what each node lacks", () => {
  const error = refused(request(), [node("a", { used: 100 }), node("b", { cordoned: true }), node("c", { accelerator: "tcg" })]);
  assert.equal(error.code, "LIMIT_REACHED");
  assert.match(error.message, /^Cannot fork python on any node: no free place for a sandbox: a; cordoned: b; has no KVM.*: c\.$/);
  assert.deepEqual(Object.keys(error.details?.["nodes"] ?? {}), ["a", "b", "c"]);
});

test("with a thousand nodes the text stays short and still has every reason", () => {
  const nodes = Array.from({ length: 1000 }, (_, at) => node(`n${at}`, at % 2 === 0 ? { used: 100 } : { cordoned: true }));
  const error = refused(request(), nodes);
  assert.match(error.message, /n0, n2, n4 and 497 more/);
  assert.match(error.message, /cordoned: n1, n3, n5 and 497 more/);
  assert.ok(error.message.length < 300);
  assert.equal(Object.keys(error.details?.["nodes"] ?? {}).length, 100);
});

test("with many reasons the rest is counted", () => {
  const nodes = Array.from({ length: 50 }, (_, at) => node(`n${at}`, { engine: { name: `other-${at}`, version: "1.0" } }));
  assert.match(refused(request(), nodes).message, /; and 44 other reasons\.$/);
});

test("a client is asked to try again only if time can help", () => {
  assert.equal(refused(request(), [node("a", { cordoned: true }), node("b", { accelerator: "tcg" })]).code, "LIMIT_REACHED");
  assert.equal(refused(request(), [node("a", { accelerator: "tcg" })]).code, "SNAPSHOT_INCOMPATIBLE");
  assert.equal(refused(request({ allowedNodes: new Set() }), [node("a")]).code, "FORBIDDEN");
  assert.equal(refused(request({ snapshot: { inRegistry: false } }), [node("a")]).code, "NOT_FOUND");
  const emulated = { ...request().snapshot.engine, accelerator: "tcg" as const };
  assert.equal(refused(request({ snapshot: { engine: emulated } }), [node("a")]).code, "ISOLATION_UNAVAILABLE");
});

test("without nodes the error says so", () => {
  assert.equal(refused(request(), []).code, "DAEMON_UNREACHABLE");
});
