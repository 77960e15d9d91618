// The tree of a cluster: copies of a snapshot are one node of it, which names all holders.

import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeNode } from "./helpers/fake-node.ts";
import { serve } from "./helpers/gateway.ts";

type Shown = { tag: string; nodes: string[]; sandboxes: { id: string; node: string }[]; snapshots: Shown[] };

const tree = (code: string, more: object[] = []): object => ({
  roots: [
    { id: "sn-aaaa222222222222", nodes: [code], tag: "base", sandboxes: [{ id: `sb-${code}222222222222`, node: code }], snapshots: more },
  ],
});

test("copies of a snapshot are one node with the nodes that hold it; sandboxes keep theirs", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const branch = { id: "sn-bbbb333333333333", nodes: ["bbbb"], tag: "branch", sandboxes: [], snapshots: [] };
  a.routes.set("GET /v1/tree", () => ({ body: tree("aaaa") }));
  b.routes.set("GET /v1/tree", () => ({ body: tree("bbbb", [branch]) }));
  const fixture = await serve(t, [a, b]);
  const { body } = await fixture.ask("/v1/tree");
  const { roots } = body as { roots: Shown[] };
  assert.deepEqual(
    roots.map(({ tag, nodes }) => [tag, nodes]),
    [["base", ["aaaa", "bbbb"]]],
  );
  assert.deepEqual(
    roots[0]?.sandboxes.map(({ node }) => node),
    ["aaaa", "bbbb"],
  );
  assert.deepEqual(
    roots[0]?.snapshots.map(({ nodes }) => nodes),
    [["bbbb"]],
  );
});
