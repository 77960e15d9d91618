// Drain of a node of a real cluster, sandboxes that have moved, and a rolling restart of daemons, through gateways.
// Runs alone: it fills three daemons with sandboxes and moves them

import assert from "node:assert/strict";
import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isAll } from "../helpers/all.ts";
import { nodeOf, TestCluster, type TestGateway } from "../helpers/cluster.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import type { Controller } from "forkd";
import type { TestDaemon } from "../helpers/daemon.ts";

const SANDBOXES = isAll ? 20 : 4;

/** Keeps each number that it has counted */
const COUNTER = `import threading, time
lines = []
def count():
    number = 0
    while True:
        number += 1
        lines.append(number)
        time.sleep(0.02)
threading.Thread(target=count, daemon=True).start()`;
/** Whether no number is missing or out of order, and how many there are; of a copy, because the counter continues */
const CHECK = "(lambda seen: (seen == list(range(1, len(seen) + 1)), len(seen)))(lines[:])";

/** Status of the page of a server in a guest, asked by its own host name with the token of a link */
async function statusOf({ bind }: TestGateway, label: string, token: string): Promise<number | undefined> {
  const { hostname, port } = new URL(`http://${bind}`);
  const headers = { host: `${label}.localhost:${port}`, "x-forkd-token": token };
  const asked = request({ host: hostname, port, path: "/", agent: false, headers, signal: AbortSignal.timeout(patience()) });
  asked.end();
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode;
}

describe("a drain of a node", () => {
  let cluster: TestCluster;
  let one: TestGateway;
  let two: TestGateway;
  let codes: string[] = [];

  const nodeAt = (at: number): TestDaemon & { controller: Controller } => cluster.nodes[at] as TestDaemon & { controller: Controller };

  /** The command line through the first gateway */
  const cli = async (args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> =>
    nodeAt(0).cli(args, { env: { FORKD_URL: `http://${one.bind}`, FORKD_TOKEN: cluster.token } });

  /** Each gateway asks the nodes on its own */
  const allUp = async (): Promise<void> => {
    for (const { controller } of [one, two])
      await until(async () => (await controller.cluster()).nodes.every(({ state }) => state === "up"), 100);
  };

  const countOf = async (gateway: TestGateway, id: string): Promise<number> => {
    const { result } = await gateway.controller.evalCode(id, CHECK);
    const [, isWhole, count] = /^\((True|False), (\d+)\)$/.exec(result ?? "") ?? [];
    assert.equal(isWhole, "True", `${id}: ${result}`);
    return Number(count);
  };

  before(async () => {
    cluster = await TestCluster.make();
    await cluster.addNode([], async (daemon) => daemon.makePython());
    await cluster.addNode();
    await cluster.addNode();
    codes = await Promise.all(cluster.nodes.map(async (_node, at) => (await nodeAt(at).controller.status()).node));
    one = await cluster.addGateway();
    two = await cluster.addGateway();
  });

  after(async () => cluster[Symbol.asyncDispose]());

  it("cordons a node until it is uncordoned, also over a restart of its daemon", async () => {
    const [a = "", b = "", c = ""] = codes;
    for (const code of [b, c]) assert.equal((await cli(["cluster", "cordon", code])).code, 0);
    const daemon = nodeAt(1);
    const { bind } = daemon;
    await daemon.controller.stop();
    await daemon.exited();
    await daemon.up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile]);
    // a gateway may still show what it knew before the restart
    for (const { controller } of [one, two])
      await until(async () => {
        const { nodes } = await controller.cluster();
        return nodes.every(({ code, state, cordoned }) => state === "up" && cordoned === (code !== a));
      });
    const { stdout } = await cli(["cluster", "status"]);
    for (const code of [b, c]) assert.match(stdout, new RegExp(`^${code} .*up, cordoned`, "m"));
    for (let i = 0; i < 3; i++) {
      const [sandbox] = await two.controller.spawnSandboxes("python");
      assert.equal(nodeOf(sandbox?.id ?? ""), a);
    }
    await one.controller.killSandboxes({ all: true });
    await assert.rejects(nodeAt(1).controller.drainNode(b), { code: "UNSUPPORTED" });
    for (const code of [b, c]) assert.equal((await cli(["cluster", "uncordon", code])).code, 0);
  });

  it(`moves ${SANDBOXES} sandboxes with running counters: none is lost, and each counts on in order`, async (t) => {
    const [a = ""] = codes;
    const made = await nodeAt(0).controller.spawnSandboxes("python", {
      n: SANDBOXES,
      metadata: { kept: "yes" },
      network: { mode: "none" },
      ttlSecs: 7200,
      idleTimeoutSecs: 3600,
    });
    const ids = made.map(({ id }) => id);
    const [first = "", second = ""] = ids;
    for (const id of ids) await one.controller.evalCode(id, COUNTER);
    await one.controller.updateSandbox(first, { name: "web" });
    await one.controller.suspendSandbox(second);
    const link = await one.controller.createPreview(first, 8000);
    const before = new Map((await one.controller.listSandboxes()).map((info) => [info.id, info]));
    const counts = new Map<string, number>();
    for (const id of ids) if (id !== second) counts.set(id, await countOf(one, id));
    const moved = (await one.controller.cluster()).moved.bytes;

    // evals continue during the drain
    const over = new AbortController();
    const failures: string[] = [];
    let evals = 0;
    const load = (async () => {
      while (!over.signal.aborted) {
        const id = ids[evals % ids.length] as string;
        if (id !== second)
          await two.controller.evalCode(id, "1 + 1", { timeoutMs: patience() }).then(
            ({ result }) => assert.equal(result, "2"),
            // a busy machine: the node did not answer the gateway in time, and the eval is tried again
            (error: Error & { code?: string }) =>
              error.code === "NODE_UNREACHABLE" ? undefined : failures.push(`${id}: ${error.message}`),
          );
        evals++;
        await sleep(20);
      }
    })();
    const { code, stdout, stderr } = await cli(["cluster", "drain", a, "--json"]).finally(() => {
      over.abort();
    });
    await load;
    assert.equal(code, 0, stderr + stdout);
    const drained = JSON.parse(stdout) as { moved: { id: string; to: string; state: string; problem: string | null }[]; left: unknown[] };
    assert.deepEqual(drained.left, []);
    assert.deepEqual(drained.moved.map(({ id }) => id).toSorted(), ids.toSorted());
    for (const { id, to, state, problem } of drained.moved) {
      assert.notEqual(to, a);
      assert.equal(problem, null, id);
      assert.equal(state, id === second ? "suspended" : "running", id);
    }
    t.diagnostic(`${evals} evals during the drain, ${failures.length} failed`);
    assert.deepEqual(failures, []);
    const sent = (await one.controller.cluster()).moved.bytes - moved;
    t.diagnostic(`${sent} bytes were sent for ${ids.length} sandboxes`);

    const now = await two.controller.listSandboxes();
    assert.deepEqual(now.map(({ id }) => id).toSorted(), ids.toSorted());
    for (const info of now) {
      const was = before.get(info.id);
      assert.ok(was);
      for (const key of [
        "name",
        "project",
        "metadata",
        "snapshot_tag",
        "network",
        "idle_timeout_secs",
        "created_at_unix_ms",
        "created_by",
        "memory_limit_mib",
      ] as const)
        assert.deepEqual(info[key], was[key], `${key} of ${info.id}`);
      if (info.id !== second) assert.equal(info.expires_at_unix, was.expires_at_unix, "the lifetime does not start anew");
      assert.deepEqual(info.certificate.identity, was.certificate.identity);
    }
    assert.deepEqual(await nodeAt(0).controller.listSandboxes(), []);
    await one.controller.resumeSandbox(second);
    for (const id of ids) {
      const count = await countOf(two, id);
      assert.ok(count >= (counts.get(id) ?? 1), `${id}: ${count} after ${counts.get(id)}`);
      await until(async () => (await countOf(one, id)) > count);
    }
    assert.equal((await two.controller.getSandbox("web")).id, first);
    await assert.rejects(nodeAt(0).controller.getSandbox(first), { code: "SANDBOX_MOVED" });

    // a link of the old node opens the server on the new one
    const server =
      "import http.server, threading\nthreading.Thread(target=http.server.HTTPServer(('', 8000), http.server.SimpleHTTPRequestHandler).serve_forever, daemon=True).start()";
    await one.controller.evalCode(first, server);
    const token = new URL(link.url).searchParams.get("forkd_preview") ?? "";
    await until(async () => (await statusOf(two, `8000-${first}`, token)) === 200, 100);
  });

  it("finds a sandbox whose old node is gone, through a gateway that did not move it", async () => {
    const third = await cluster.addGateway();
    const ids = (await one.controller.listSandboxes()).map(({ id }) => id);
    await nodeAt(0).kill9();
    const { bind } = nodeAt(0);
    try {
      for (const gateway of [third, two])
        await until(async () =>
          (await gateway.controller.cluster()).nodes.some(({ code, state }) => code === codes[0] && state === "down"),
        );
      for (const id of ids) assert.ok((await countOf(third, id)) > 0);
    } finally {
      await nodeAt(0).up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile]);
    }
    await allUp();
    await third.kill9();
  });

  it("says of a sandbox whose node has died which of its branches can be forked elsewhere, and they can", async () => {
    const [a = ""] = codes;
    await one.controller.killSandboxes({ all: true });
    await cli(["cluster", "uncordon", a]);
    const [made] = await nodeAt(0).controller.spawnSandboxes("python");
    const id = made?.id ?? "";
    await one.controller.evalCode(id, "kept = 41");
    await one.controller.branchSandbox(id, { tag: "kept" });
    await one.controller.evalCode(id, "kept = 0");
    // brings the branch to another node
    await cli(["cluster", "cordon", a]);
    const [elsewhere] = await one.controller.spawnSandboxes("kept");
    assert.notEqual(nodeOf(elsewhere?.id ?? ""), a);
    const { bind } = nodeAt(0);
    await nodeAt(0).kill9();
    try {
      await until(async () => (await two.controller.cluster()).nodes.some(({ code, state }) => code === a && state === "down"));
      await assert.rejects(
        two.controller.getSandbox(id),
        ({ code, details }: { code: string; details: { checkpoints: { tag: string }[] } }) => {
          assert.equal(code, "NODE_UNREACHABLE");
          assert.deepEqual(
            details.checkpoints.map(({ tag }) => tag),
            ["kept"],
          );
          return true;
        },
      );
      const [again] = await two.controller.spawnSandboxes("kept");
      assert.equal((await two.controller.evalCode(again?.id ?? "", "kept + 1")).value, 42);
      assert.equal((await one.controller.getSandbox(elsewhere?.id ?? "")).state, "running", "what runs on other nodes continues");
    } finally {
      await nodeAt(0).up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile]);
    }
    await allUp();
    await one.controller.killSandboxes({ all: true });
    await one.controller.deleteSnapshot("kept");
  });

  it("moves a workspace, running and suspended, and back again", async () => {
    const [a = "", b = "", c = ""] = codes;
    await allUp();
    await one.controller.killSandboxes({ all: true });
    assert.equal((await cli(["cluster", "uncordon", a])).code, 0);
    for (const code of [b, c]) assert.equal((await cli(["cluster", "cordon", code])).code, 0);
    for (const name of ["awake", "asleep"]) {
      const { live_sandbox_id: id } = await one.controller.createWorkspace(name, "python");
      await one.controller.evalCode(id ?? "", `kept = '${name}'`);
    }
    await one.controller.suspendWorkspace("asleep");
    for (const code of [b, c]) await cli(["cluster", "uncordon", code]);
    for (const [from, rest] of [
      [a, [b, c]],
      [b, [a, c]],
      [c, [a, b]],
    ] as const) {
      for (const code of rest) await cli(["cluster", "uncordon", code]);
      const { code, stdout, stderr } = await cli(["cluster", "drain", from, "--json"]);
      assert.equal(code, 0, stderr + stdout);
    }
    assert.deepEqual((await two.controller.listWorkspaces()).map(({ name, status }) => `${name} ${status}`).toSorted(), [
      "asleep suspended",
      "awake running",
    ]);
    const { live_sandbox_id: resumed } = await two.controller.resumeWorkspace("asleep");
    const { live_sandbox_id: awake } = await two.controller.getWorkspace("awake");
    assert.equal((await two.controller.evalCode(resumed ?? "", "kept")).result, "'asleep'");
    assert.equal((await two.controller.evalCode(awake ?? "", "kept")).result, "'awake'");
    for (const name of ["awake", "asleep"]) await two.controller.deleteWorkspace(name);
    for (const code of codes) await cli(["cluster", "uncordon", code]);
  });

  it("moves what runs on a daemon that ends with leave_secs, without a request; the next one runs what no node took", async () => {
    const [, b, c] = codes;
    const daemon = nodeAt(0);
    const { bind } = daemon;
    /** @param leaveSecs how long the next SIGTERM waits for gateways */
    const restart = async (leaveSecs: number): Promise<void> => {
      process.kill((await daemon.controller.status()).pid, "SIGTERM");
      await daemon.exited();
      await daemon.up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile, "--leave-secs", String(leaveSecs)]);
      await allUp();
    };
    await restart(3600);
    const made = await daemon.controller.spawnSandboxes("python", { n: 3, network: { mode: "none" } });
    const ids = made.map(({ id }) => id);
    const [first = "", second = ""] = ids;
    await one.controller.evalCode(first, COUNTER);
    const before = await countOf(one, first);
    await one.controller.evalCode(second, "kept = 41");
    await one.controller.pauseSandbox(second);
    await restart(2);
    assert.deepEqual(await daemon.controller.listSandboxes(), [], "it ended when all had moved, long before its time");
    const now = new Map((await two.controller.listSandboxes()).map(({ id, state }) => [id, state]));
    assert.deepEqual(
      ids.map((id) => now.get(id)),
      ["running", "paused", "running"],
    );
    await two.controller.resumeSandbox(second);
    assert.equal((await two.controller.evalCode(second, "kept + 1")).value, 42);
    assert.ok((await countOf(two, first)) >= before);

    for (const code of [b, c]) await cli(["cluster", "cordon", code ?? ""]);
    const [stays] = await daemon.controller.spawnSandboxes("python");
    await one.controller.evalCode(stays?.id ?? "", COUNTER);
    const counted = await countOf(one, stays?.id ?? "");
    await restart(0);
    await until(async () => (await one.controller.getSandbox(stays?.id ?? "")).state === "running");
    assert.ok((await countOf(two, stays?.id ?? "")) >= counted);
    for (const code of [b, c]) await cli(["cluster", "uncordon", code ?? ""]);
    await one.controller.killSandboxes({ all: true });
  });

  it("restarts each daemon under a load of evals without losing a sandbox", async (t) => {
    const made = [];
    for (let i = 0; i < 4; i++) made.push(...(await one.controller.spawnSandboxes("python")));
    const ids = made.map(({ id }) => id);
    for (const id of ids) await one.controller.evalCode(id, "n = 0");
    const acknowledged = new Map(ids.map((id) => [id, 0]));
    const over = new AbortController();
    const problems: string[] = [];
    const retried = new Set(["NODE_UNREACHABLE", "STOPPING", "DAEMON_UNREACHABLE", "BUSY"]);
    const load = ids.map(async (id, at) => {
      const { controller } = at % 2 === 0 ? one : two;
      while (!over.signal.aborted) {
        try {
          const { result } = await controller.evalCode(id, "n += 1\nn", { timeoutMs: patience() });
          acknowledged.set(id, Number(result));
        } catch (error) {
          const { code } = error as { code?: string };
          if (!retried.has(code ?? "")) problems.push(`${id}: ${String(error)}`);
        }
        await sleep(50);
      }
    });
    try {
      for (let at = 0; at < cluster.nodes.length; at++) {
        const daemon = nodeAt(at);
        const { bind } = daemon;
        const { pid } = await daemon.controller.status();
        process.kill(pid, "SIGTERM");
        await daemon.exited();
        await daemon.up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile]);
        await allUp();
      }
    } finally {
      over.abort();
      await Promise.all(load);
    }
    assert.deepEqual(problems, []);
    t.diagnostic(`acknowledged evals: ${[...acknowledged.values()].join(", ")}`);
    for (const id of ids) {
      const { result } = await two.controller.evalCode(id, "n");
      assert.ok(Number(result) >= (acknowledged.get(id) ?? 0), `${id}: ${result}`);
      assert.equal((await two.controller.getSandbox(id)).state, "running");
    }
    await one.controller.killSandboxes({ all: true });
  });
});
