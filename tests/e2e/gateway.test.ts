// A cluster of three daemons and two gateways: locality, movement of a branch, previews, E2B, death of a node and of a gateway.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { nodeOf, TestCluster, type TestGateway } from "../helpers/cluster.ts";
import { until } from "../helpers/until.ts";
import { Controller } from "forkd";
import { patience } from "../helpers/patience.ts";
import type { TestDaemon } from "../helpers/daemon.ts";

const ROOM_OF_SMALL = 3;

describe("a cluster", () => {
  let cluster: TestCluster;
  let one: TestGateway;
  let two: TestGateway;
  /** codes of the nodes: a and b hold the snapshot, c does not; b has few places */
  let [a, b, c] = ["", "", ""];

  const codeOf = async (at: number): Promise<string> => (await (cluster.nodes[at] as { controller: Controller }).controller.status()).node;

  /** A copy on the second node: the same snapshot with the same id */
  const copyPython = async (): Promise<void> => {
    const file = join(cluster.dir, "python.pack");
    const [from, to] = cluster.nodes;
    for (const [node, args] of [
      [from, ["pack", "python", "-o", file, "--level", "1"]],
      [to, ["unpack", file]],
    ] as const) {
      const { code, stderr } = (await node?.cli(args)) ?? { code: 1, stderr: "no node" };
      assert.equal(code, 0, stderr);
    }
  };

  /** The command line through the first gateway */
  const cli = async (args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> =>
    (cluster.nodes[0] as TestDaemon).cli(args, { env: { FORKD_URL: `http://${one.bind}`, FORKD_TOKEN: cluster.token } });

  before(async () => {
    cluster = await TestCluster.make();
    await cluster.addNode([], async (daemon) => daemon.makePython());
    await cluster.addNode(["--max-sandboxes", String(ROOM_OF_SMALL)]);
    await cluster.addNode();
    await copyPython();
    [a, b, c] = [await codeOf(0), await codeOf(1), await codeOf(2)];
    one = await cluster.addGateway();
    two = await cluster.addGateway();
  });

  after(async () => cluster[Symbol.asyncDispose]());

  it("shows its nodes and what they hold", async () => {
    const { nodes } = await one.controller.cluster();
    assert.deepEqual(
      nodes.map(({ code, state, snapshots }) => [code, state, snapshots.map(({ tag }) => tag)]),
      [
        [a, "up", ["python"]],
        [b, "up", ["python"]],
        [c, "up", []],
      ],
    );
    const { code, stdout } = await cli(["cluster", "status"]);
    assert.equal(code, 0);
    for (const each of [a, b, c]) assert.match(stdout, new RegExp(`^${each} +http://127.0.0.1:\\d+ +up`, "m"));
    assert.equal((await one.controller.listSnapshots()).length, 1, "a copy is the same snapshot");
  });

  it("forks where the snapshot is, and finds each sandbox by its id through any gateway", async () => {
    const made: string[] = [];
    for (let i = 0; i < 6; i++) {
      const { controller } = i % 2 === 0 ? one : two;
      const [sandbox] = await controller.spawnSandboxes("python", { metadata: { i: String(i) } });
      assert.ok(sandbox);
      made.push(sandbox.id);
    }
    const local = made.filter((id) => nodeOf(id) === a || nodeOf(id) === b).length;
    assert.ok(local / made.length >= 0.95, `${local} of ${made.length} on a node that holds the snapshot`);
    for (const [i, id] of made.entries()) {
      const { controller } = i % 2 === 0 ? two : one;
      const { result } = await controller.evalCode(id, `${i} * 7`);
      assert.equal(result, String(i * 7), id);
    }
    const listed = await two.controller.listSandboxes();
    assert.deepEqual(listed.map(({ id }) => id).toSorted(), made.toSorted());
    const ended = await one.controller.killSandboxes({ all: true });
    assert.deepEqual(ended.toSorted(), made.toSorted());
  });

  it("moves the branch of a sandbox whose node is full, and sends no more than its changed pages", async (t) => {
    const { controller } = cluster.nodes[1] as { controller: Controller };
    const sandboxes = await controller.spawnSandboxes("python", { n: ROOM_OF_SMALL });
    const [source] = sandboxes;
    assert.ok(source);
    await one.controller.evalCode(source.id, "kept = list(range(1000))");
    const before = (await one.controller.cluster()).moved;
    const forked = await one.controller.forkSandbox(source.id, { n: 1 });
    const [child] = forked.sandboxes;
    assert.ok(child);
    assert.equal(nodeOf(child.id) === b, false, "its own node has no place");
    const { result } = await two.controller.evalCode(child.id, "sum(kept)");
    assert.equal(result, "499500", "the child continues with the source's memory");
    const { moved } = await one.controller.cluster();
    const bytes = moved.bytes - before.bytes;
    const delta = forked.snapshot.delta_bytes ?? 0;
    t.diagnostic(`${bytes} bytes were sent for ${delta} bytes of changed pages`);
    // node a has the base; c would have needed it too
    if (nodeOf(child.id) === a) assert.ok(bytes <= delta * 1.05 + 64 * 1024, `${bytes} bytes sent for ${delta} bytes of changed pages`);
    assert.equal(moved.snapshots - before.snapshots, 1);
    await one.controller.killSandboxes({ all: true });
  });

  it("keeps projects apart on all nodes, and counts their quotas over all of them", async () => {
    const admin = one.controller;
    await admin.updateSnapshot("python", { visibility: "public" });
    const memberOf = async (project: string): Promise<Controller> => {
      const { code, stdout, stderr } = await cli(["token", "create", "ci", "--project", project, "--scope", "admin", "--json"]);
      assert.equal(code, 0, stderr);
      const { token } = JSON.parse(stdout) as { token: string };
      return new Controller({ url: `http://${two.bind}`, token, timeoutMs: patience() });
    };
    for (const args of [["acme", "--sandboxes", "3"], ["other"]]) {
      const { code, stderr } = await cli(["project", "create", ...args]);
      assert.equal(code, 0, stderr);
    }
    const [acme, other] = [await memberOf("acme"), await memberOf("other")];
    // forks at the same moment go to several nodes
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, async () => acme.spawnSandboxes("default/python")));
    const refusals = outcomes.flatMap((each) => (each.status === "rejected" ? [(each.reason as { code: string }).code] : []));
    assert.deepEqual(refusals, ["QUOTA_EXCEEDED", "QUOTA_EXCEEDED", "QUOTA_EXCEEDED"]);
    const { used, limits } = await acme.quota();
    assert.deepEqual([used.sandboxes, limits.sandboxes], [3, 3]);
    const shown = await cli(["--project", "acme", "quota"]);
    assert.match(shown.stdout, /sandboxes +3 +3/);
    const [mine] = await acme.listSandboxes();
    const [theirs] = await other.spawnSandboxes("default/python", { name: "web" });
    assert.ok(mine && theirs);
    await acme.updateSandbox(mine.id, { name: "web" });
    assert.equal((await acme.getSandbox("web")).id, mine.id);
    assert.equal((await other.getSandbox("web")).id, theirs.id);
    for (const attempt of [
      async () => other.getSandbox(mine.id),
      async () => other.evalCode(mine.id, "1"),
      async () => other.killSandbox(mine.id),
      async () => admin.evalCode(mine.id, "1"),
    ])
      await assert.rejects(attempt(), { code: "NOT_FOUND" });
    // one tag, two snapshots
    await acme.evalCode(mine.id, "whose = 'acme'");
    await other.evalCode(theirs.id, "whose = 'other'");
    await acme.branchSandbox(mine.id, { tag: "work" });
    await other.branchSandbox(theirs.id, { tag: "work" });
    await acme.killSandboxes({ all: true });
    for (const [controller, whose] of [
      [acme, "'acme'"],
      [other, "'other'"],
    ] as const) {
      const [fork] = await controller.spawnSandboxes("work");
      assert.equal((await controller.evalCode(fork?.id ?? "", "whose")).result, whose);
    }
    await assert.rejects(other.spawnSandboxes("acme/work"), { code: "NOT_FOUND" });
    const all = new Controller({ url: `http://${one.bind}`, token: cluster.token, project: "*", timeoutMs: patience() });
    assert.deepEqual((await all.listSandboxes()).map(({ project }) => project).toSorted(), ["acme", "other", "other"]);
    await assert.rejects(admin.deleteProject("acme"), { code: "IN_USE" });
    for (const [project, controller] of [
      ["acme", acme],
      ["other", other],
    ] as const) {
      await controller.killSandboxes({ all: true });
      await controller.deleteSnapshot("work");
      await controller.deleteToken("ci");
      const { code, stderr } = await cli(["project", "rm", project]);
      assert.equal(code, 0, stderr);
    }
    await admin.updateSnapshot("python", { visibility: "private" });
  });

  it("merges events, which continue through the other gateway", async () => {
    const seen: string[] = [];
    const stop = new AbortController();
    const reading = (async () => {
      for await (const event of one.controller.events({ signal: stop.signal }))
        if (event.sandbox !== null) seen.push(`${event.type} ${event.sandbox}`);
    })().catch((error: unknown) => {
      if (!stop.signal.aborted) throw error;
    });
    await sleep(1000);
    const [first] = await two.controller.spawnSandboxes("python");
    assert.ok(first);
    await two.controller.killSandbox(first.id);
    await until(() => seen.some((line) => line === `sandbox.deleted ${first.id}`));
    assert.ok(seen.includes(`sandbox.created ${first.id}`));
    stop.abort();
    await reading;
  });

  it("loses nothing that was acknowledged when a node and a gateway are killed under load", async () => {
    const acknowledged = new Set<string>();
    const problems: string[] = [];
    const over = new AbortController();
    const load = async (gateways: TestGateway[]): Promise<void> => {
      while (!over.signal.aborted) {
        const [gateway, other] = gateways;
        try {
          const [sandbox] = await (gateway as TestGateway).controller.spawnSandboxes("python", { idempotencyKey: null });
          if (sandbox) acknowledged.add(sandbox.id);
        } catch (error) {
          const { code } = error as { code?: string };
          if (!["NODE_UNREACHABLE", "DAEMON_UNREACHABLE", "LIMIT_REACHED", "STOPPING"].includes(code ?? ""))
            problems.push(`${code}: ${String(error)}`);
          // the client of a dead gateway uses another
          if (code === "DAEMON_UNREACHABLE" && other) gateways.reverse();
          await sleep(100);
        }
        if (acknowledged.size >= 8) await sleep(500);
      }
    };
    const running = [load([one, two]), load([two])];
    await until(() => acknowledged.size >= 2);
    const dead = cluster.nodes[1] as (typeof cluster.nodes)[number];
    await dead.kill9();
    await one.kill9();
    const before = acknowledged.size;
    await until(() => acknowledged.size >= before + 2);
    over.abort();
    await Promise.all(running);
    assert.deepEqual(problems, []);
    const elsewhere = [...acknowledged].filter((id) => nodeOf(id) !== b);
    assert.ok(elsewhere.length >= 2);
    for (const id of elsewhere) assert.equal((await two.controller.evalCode(id, "6 * 7")).result, "42", id);
    const gone = [...acknowledged].find((id) => nodeOf(id) === b);
    if (gone !== undefined)
      await assert.rejects(two.controller.getSandbox(gone), (error: { code?: string }) => error.code === "NODE_UNREACHABLE");
    // the daemon adopts its sandboxes when it is back
    await dead.up(["--bind", dead.bind ?? "", "--cluster-key-file", cluster.keyFile]);
    for (const id of acknowledged)
      await until(async () => (await two.controller.getSandbox(id).catch(() => undefined))?.state === "running");
    await two.controller.killSandboxes({ all: true });
  });
});
