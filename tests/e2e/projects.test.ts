// Two projects on one daemon, with real VMs: nothing of one exists for the other, quotas hold, and forks take turns.
// Runs alone: it compares the time of forks with and without the load of another project

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

const FORKS = 15;
const PAIRS = 5;
/** Requests that the busy project has under way all the time */
const BUSY = 8;

describe("projects", () => {
  let daemon: TestDaemon;
  let acme: Controller;
  let other: Controller;

  const memberOf = async (project: string, scope: "admin" | "exec" = "admin"): Promise<Controller> => {
    await daemon.controller.createProject(project);
    const { token } = await daemon.controller.createToken("member", { project, scope });
    return new Controller({ url: `http://${daemon.bind}`, token, timeoutMs: patience() });
  };

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await daemon.makePython();
    await daemon.controller.updateSnapshot("python", { visibility: "public" });
    acme = await memberOf("acme");
    other = await memberOf("other");
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("have sandboxes, snapshots, names and files of their own", async () => {
    const [mine] = await acme.spawnSandboxes("default/python", { name: "web", metadata: { secret: "canary" } });
    const [theirs] = await other.spawnSandboxes("default/python", { name: "web" });
    assert.ok(mine && theirs);
    assert.notEqual(mine.id, theirs.id);
    const { id } = mine;
    await acme.writeFile("web", "/canary", "canary");
    assert.equal((await other.getSandbox("web")).id, theirs.id);
    assert.equal((await other.execCommand("web", ["cat", "/canary"])).exit_code, 1);
    const denied: (() => Promise<unknown>)[] = [
      async () => other.getSandbox(id),
      async () => other.execCommand(id, ["true"]),
      async () => other.evalCode(id, "1"),
      async () => other.branchSandbox(id),
      async () => other.forkSandbox(id),
      async () => other.killSandbox(id),
      async () => other.pauseSandbox(id),
      async () => other.suspendSandbox(id),
      async () => other.listFiles(id, "/"),
      async () => other.listProcesses(id),
      async () => other.listPorts(id),
      async () => other.getNetwork(id),
      async () => other.sandboxStats(id),
      async () => other.createPreview(id, 80),
    ];
    for (const attempt of denied) await assert.rejects(attempt(), { code: "NOT_FOUND" });
    await acme.branchSandbox(id, { tag: "work", metadata: { secret: "canary" } });
    await assert.rejects(other.spawnSandboxes("work"), { code: "NOT_FOUND" });
    await assert.rejects(other.spawnSandboxes("acme/work"), { code: "NOT_FOUND" });
    const everything = JSON.stringify([
      await other.listSandboxes(),
      await other.listSnapshots(),
      await other.listImages(),
      await other.listWorkspaces(),
      await other.listTokens(),
      await other.tree(),
      await other.stats(),
      await other.status(),
      await other.metrics(),
      await other.quota(),
    ]);
    for (const canary of ["canary", id, "acme"]) assert.ok(!everything.includes(canary), canary);
    await acme.updateSnapshot("work", { visibility: "public" });
    const [fork] = await other.spawnSandboxes("acme/work");
    assert.equal((await other.execCommand(fork?.id ?? "", ["cat", "/canary"])).stdout, "canary");
    const all = new Controller({ socket: daemon.socket, project: "*", timeoutMs: patience() });
    assert.deepEqual((await all.listSandboxes()).map(({ project }) => project).toSorted(), ["acme", "other", "other"]);
    const chosen = new Controller({ socket: daemon.socket, project: "acme", timeoutMs: patience() });
    assert.deepEqual(
      (await chosen.listSnapshots()).map(({ tag }) => tag),
      ["work"],
    );
    await assert.rejects(chosen.deleteSnapshot("work"), { code: "IN_USE" });
    for (const controller of [acme, other]) await controller.killSandboxes({ all: true });
    await chosen.deleteSnapshot("work");
  });

  it("are the same after a restart of the daemon", async () => {
    const [mine] = await acme.spawnSandboxes("default/python", { name: "kept" });
    await daemon.down();
    await daemon.up(["--bind", daemon.bind ?? "127.0.0.1:0"]);
    assert.equal((await acme.getSandbox("kept")).id, mine?.id);
    await assert.rejects(other.getSandbox(mine?.id ?? ""), { code: "NOT_FOUND" });
    await acme.killSandbox("kept");
  });

  it("have quotas, which concurrent forks cannot exceed together", async () => {
    await daemon.controller.updateProject("other", { sandboxes: 2, suspended: 1 });
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, async () => other.spawnSandboxes("default/python")));
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 2);
    for (const outcome of outcomes)
      if (outcome.status === "rejected") assert.equal((outcome.reason as { code: string }).code, "QUOTA_EXCEEDED");
    const { used, limits } = await other.quota();
    assert.deepEqual([used.sandboxes, limits.sandboxes, used.vcpus], [2, 2, 2]);
    const [first, second] = await other.listSandboxes();
    await other.suspendSandbox(first?.id ?? "");
    await assert.rejects(other.suspendSandbox(second?.id ?? ""), { code: "QUOTA_EXCEEDED" });
    assert.equal((await other.getSandbox(second?.id ?? "")).state, "running");
    await other.updateSandbox(first?.id ?? "", { suspendedTtlSecs: 1 });
    await until(async () => (await other.listSandboxes({ state: ["suspended"] })).length === 0);
    await other.killSandboxes({ all: true });
    await daemon.controller.updateProject("other", { sandboxes: null, suspended: null });
  });

  it("take turns: forks of one take less than twice as long while another forks without pause", async (t) => {
    const median = async (): Promise<number> => {
      const times: number[] = [];
      for (let at = 0; at < FORKS; at++) {
        const from = performance.now();
        const [made] = await other.spawnSandboxes("default/python");
        times.push(performance.now() - from);
        await other.killSandbox(made?.id ?? "");
        await sleep(20);
      }
      return times.toSorted((a, b) => a - b)[Math.floor(FORKS / 2)] ?? 0;
    };
    await median();
    const pairs: { quiet: number; busy: number; during: number }[] = [];
    // other work of the machine only adds to a ratio, so the best of a few pairs counts; turns alone, without a share of
    // the places, gave 5
    for (let pair = 0; pair < PAIRS && !pairs.some(isFair); pair++) {
      const quiet = await median();
      const over = new AbortController();
      let forked = 0;
      const loads = Array.from({ length: BUSY }, async () => {
        while (!over.signal.aborted) {
          const [made] = await acme.spawnSandboxes("default/python");
          forked++;
          await acme.killSandbox(made?.id ?? "");
        }
      });
      await until(() => forked > BUSY);
      const before = forked;
      const busy = await median();
      pairs.push({ quiet, busy, during: forked - before });
      over.abort();
      await Promise.all(loads);
    }
    const shown = pairs.map(({ quiet, busy, during }) => `${quiet.toFixed(0)} ms alone, ${busy.toFixed(0)} ms beside ${during} forks`);
    t.diagnostic(`fork p50: ${shown.join("; ")}`);
    assert.ok(pairs.some(isFair), shown.join("; "));
  });
});

/** The other project must have forked more than this one meanwhile: else nothing was shared */
function isFair({ quiet, busy, during }: { quiet: number; busy: number; during: number }): boolean {
  return during > FORKS && busy < 2 * quiet;
}
