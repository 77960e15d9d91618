// What a gateway adds to a fork and to an eval, against the same daemon over TCP.
// Runs alone: it measures time.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Controller } from "forkd";
import { TestCluster } from "../helpers/cluster.ts";
import { patience } from "../helpers/patience.ts";

const FORKS = 30;
const EVALS = 300;
/** Of the median. It is far above the figures in docs/cluster.md, and below what a buffered body or a second look-up costs */
const MOST_MS = patience() / 20_000;

describe("a gateway", () => {
  let cluster: TestCluster;
  let direct: Controller;
  let through: Controller;

  before(async () => {
    cluster = await TestCluster.make();
    const node = await cluster.addNode([], async (daemon) => daemon.makePython());
    const { token } = await node.controller.createToken("bench", { scope: "exec" });
    direct = new Controller({ url: `http://${node.bind}`, token });
    through = (await cluster.addGateway()).controller;
  });

  after(async () => cluster[Symbol.asyncDispose]());

  it("adds little to an eval and to a fork, by the median", async (t) => {
    const [sandbox] = await through.spawnSandboxes("python");
    assert.ok(sandbox);
    const evaluate = async (forkd: Controller): Promise<unknown> => forkd.evalCode(sandbox.id, "1");
    const added = await inTurns(direct, through, EVALS, evaluate);
    t.diagnostic(
      `eval: ${added.direct.toFixed(2)} ms direct, ${added.through.toFixed(2)} ms through the gateway, +${added.more.toFixed(2)} ms`,
    );
    const fork = async (forkd: Controller): Promise<() => Promise<unknown>> => {
      const [child] = await forkd.spawnSandboxes("python");
      return async () => forkd.killSandbox(child?.id ?? "");
    };
    const forks = await inTurns(direct, through, FORKS, fork);
    t.diagnostic(
      `fork: ${forks.direct.toFixed(2)} ms direct, ${forks.through.toFixed(2)} ms through the gateway, +${forks.more.toFixed(2)} ms`,
    );
    assert.ok(added.more <= MOST_MS, `an eval takes ${added.more} ms more`);
    assert.ok(forks.more <= MOST_MS, `a fork takes ${forks.more} ms more`);
  });
});

/** Alternates, so that both see the same machine. `more`: median of the differences of neighbours */
async function inTurns(
  direct: Controller,
  through: Controller,
  rounds: number,
  work: (forkd: Controller) => Promise<unknown>,
): Promise<{ direct: number; through: number; more: number }> {
  const times = { direct: [] as number[], through: [] as number[], more: [] as number[] };
  const time = async (forkd: Controller): Promise<number> => {
    const start = performance.now();
    const cleanUp = await work(forkd);
    const ms = performance.now() - start;
    if (typeof cleanUp === "function") await (cleanUp as () => Promise<unknown>)();
    return ms;
  };
  for (let round = -10; round < rounds; round++) {
    const isFirst = round % 2 === 0;
    const first = await time(isFirst ? direct : through);
    const second = await time(isFirst ? through : direct);
    if (round < 0) continue; // warm-up
    const [one, other] = isFirst ? [first, second] : [second, first];
    times.direct.push(one);
    times.through.push(other);
    times.more.push(other - one);
  }
  return { direct: median(times.direct), through: median(times.through), more: median(times.more) };
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
