// The simulation of forkd bench cluster, with a tenth of its nodes and less.

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { benchCluster, clusterPlots, type ClusterReport } from "@forkd/bench";
import { forkd } from "./helpers.ts";

const quietly = { progress: () => {}, signal: new AbortController().signal };

let report: ClusterReport;
before(async () => {
  report = await benchCluster({ ...quietly, nodes: 100, secs: 60, seed: 7 });
});

function of(name: string): ClusterReport["policies"][number] {
  const found = report.policies.find(({ policy }) => policy === name);
  assert.ok(found, name);
  return found;
}

test("at least 95 % of the forks start where the snapshot is, and none fails", () => {
  assert.ok(of("forkd").locality >= 0.95, String(of("forkd").locality));
  assert.equal(of("forkd").failed, 0);
  assert.ok(of("forkd").forks > 8000);
});

test("placement sends less, and forks wait less, than with random or least-loaded placement", () => {
  for (const name of ["random", "least loaded, reports", "least loaded, now"]) {
    assert.ok(of("forkd").moved_gib < of(name).moved_gib / 5, `${name}: ${of("forkd").moved_gib} of ${of(name).moved_gib} GiB`);
    assert.ok(of("forkd").wait_ms.p99 < of(name).wait_ms.p99, name);
  }
});

test("spreading a hot snapshot early shortens the longest waits", () => {
  const [own, without] = [of("forkd"), of("forkd, no spreading")];
  assert.ok(own.wait_ms.p99 < without.wait_ms.p99, `${own.wait_ms.p99} ms with, ${without.wait_ms.p99} ms without`);
});

test("the fullest node is about as full as with least-loaded placement", () => {
  const [own, even] = [of("forkd").load, of("least loaded, now").load];
  assert.ok(own.mean > 0.4, `mean ${own.mean}`);
  assert.ok(own.max_to_mean < 1.25 * even.max_to_mean, `${own.max_to_mean} and ${even.max_to_mean}`);
});

test("nodes fail and are drained: only sandboxes of dead nodes are lost", () => {
  const { scenario } = report;
  const failures = Math.ceil(scenario.secs / scenario.failEverySecs);
  const { lost, moved_by_drains: moved } = of("forkd");
  assert.ok(lost > 0 && lost <= failures * 160, `${lost} lost by ${failures} failures`);
  assert.ok(moved > 0);
});

test("the same seed repeats every figure, another one does not", async () => {
  const small = { ...quietly, nodes: 20, secs: 20 };
  const [one, again, other] = [
    await benchCluster({ ...small, seed: 3 }),
    await benchCluster({ ...small, seed: 3 }),
    await benchCluster({ ...small, seed: 4 }),
  ];
  assert.deepEqual(again.policies, one.policies);
  assert.notDeepEqual(other.policies, one.policies);
});

test("the charts have a line or bar for each policy, and no value that is not a number", () => {
  const charts = clusterPlots(report);
  assert.deepEqual(Object.keys(charts), ["cluster-compared.svg", "cluster-wait.svg", "cluster-load.svg"]);
  for (const [name, svg] of Object.entries(charts)) {
    for (const { policy } of report.policies) assert.ok(svg.includes(`>${policy}</text>`), `${name}: ${policy}`);
    assert.doesNotMatch(svg, /NaN|undefined|Infinity/, name);
  }
});

test("forkd bench cluster prints figures with method and machine, and writes the charts", async () => {
  const folder = await mkdtemp(join(tmpdir(), "cluster-"));
  try {
    const { code, stdout } = await forkd(["bench", "cluster", "--nodes", "20", "--secs", "10", "--seed", "5", "--svg", folder]);
    assert.equal(code, 0);
    assert.match(stdout, /^PLACEMENT +LOCAL +SENT/);
    assert.match(stdout, /Method: discrete-event simulation of 20 nodes, 2000 forks per minute/);
    assert.match(stdout, /Machine: /);
    assert.deepEqual((await readdir(folder)).sort(), ["cluster-compared.svg", "cluster-load.svg", "cluster-wait.svg"]);
    assert.match(await readFile(join(folder, "cluster-load.svg"), "utf8"), /^<svg .*seed 5.*<\/svg>\n$/s);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a size that cannot be simulated is refused", async () => {
  const { code, stderr } = await forkd(["bench", "cluster", "--nodes", "0"]);
  assert.notEqual(code, 0);
  assert.match(stderr, /at least 1/);
});
