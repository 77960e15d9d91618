// Nodes that join, move to another address and leave while a gateway runs.

import assert from "node:assert/strict";
import { createSecretKey } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { Nodes } from "../src/nodes/nodes.ts";
import { Signer } from "../src/nodes/signer.ts";
import { Uses } from "../src/nodes/uses.ts";
import { openFolderState } from "../src/state/folder.ts";
import { ClusterProjects } from "../src/state/projects.ts";
import { ClusterTokens } from "../src/state/tokens.ts";
import { FakeNode, KEY } from "./helpers/fake-node.ts";
import { until } from "./helpers/gateway.ts";

test("a machine whose daemon has another address stays the same node", async (t) => {
  const [before, after] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "aaaa")];
  const nodes = await nodesOf(t, [{ url: before.url, machine: "m" }]);
  const [node] = nodes.all;
  assert.ok(node?.isUp);
  await before.close();
  nodes.change([{ url: after.url, machine: "m" }]);
  await until(() => node.isUp && node.url === after.url);
  assert.deepEqual(nodes.all, [node]);
  assert.equal(nodes.ofId("sb-aaaa222222222222"), node);
});

test("a machine that joins is reported, and one that is no longer listed is down but known", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const nodes = await nodesOf(t, [{ url: a.url, machine: "ma" }]);
  const joined: string[] = [];
  const forget = nodes.observe(({ machine }) => joined.push(machine));
  nodes.change([
    { url: a.url, machine: "ma" },
    { url: b.url, machine: "mb" },
  ]);
  await until(() => nodes.up.length === 2);
  assert.deepEqual(joined, ["mb"]);
  forget();
  await a.close();
  nodes.change([{ url: b.url, machine: "mb" }]);
  await until(() => nodes.byCode("aaaa")?.isUp === false);
  assert.deepEqual(
    nodes.up.map(({ machine }) => machine),
    ["mb"],
  );
});

async function nodesOf(t: TestContext, addresses: { url: string; machine: string }[]): Promise<Nodes> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-gateway-"));
  const state = await openFolderState(dir, { onError: (message) => assert.fail(message) });
  const log = { info: () => undefined, warn: () => undefined };
  const signer = new Signer([createSecretKey(Buffer.from(KEY))], { tokens: new ClusterTokens(state), uses: new Uses() });
  const nodes = new Nodes(addresses, { signer, projects: new ClusterProjects(state), log });
  t.after(async () => {
    nodes.close();
    await state[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });
  await nodes.start();
  return nodes;
}
