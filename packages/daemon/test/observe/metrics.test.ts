// Metrics in Prometheus' format.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Metrics } from "../../src/observe/metrics.ts";

const LEVELS = {
  projectOf: new Map(),
  quotas: [],
  sandboxes: 2,
  guestBytes: 512,
  snapshots: 3,
  branchesInFlight: 1,
  poolWaiting: 4,
  poolSize: 5,
};

test("counters and gauges have the names that dashboards use", async () => {
  const metrics = new Metrics({ version: "9.9", branchConcurrency: 6 });
  metrics.collectFrom(async () => ({ ...LEVELS, privateBytes: new Map([["sb-1", 4096]]) }));
  metrics.forked(20, true);
  metrics.forked(20, false);
  metrics.branched(3, 1000, true);
  metrics.branched(0, 0, false);
  const { evaluated, executed } = metrics;
  evaluated(5, true);
  executed(7, false);
  metrics.failed("BUSY");
  metrics.answered({ route: "/x/:id", method: "GET", status: 200, ms: 3 });
  const text = await metrics.text();
  for (const line of [
    "forkd_snapshots_total 3",
    "forkd_sandboxes_active 2",
    "forkd_branches_in_flight 1",
    "forkd_branch_concurrency_cap 6",
    'forkd_build_info{version="9.9"} 1',
    'forkd_forks_total{result="ok"} 1',
    'forkd_forks_total{result="error"} 1',
    'forkd_branches_total{result="ok"} 1',
    'forkd_evals_total{result="ok"} 1',
    'forkd_execs_total{result="error"} 1',
    'forkd_errors_total{code="BUSY"} 1',
    "forkd_delta_bytes_total 1000",
    'forkd_http_requests_total{route="/x/:id",method="GET",status="200"} 1',
    "forkd_fork_ready_seconds_count 1",
    "forkd_branch_pause_seconds_count 1",
    "forkd_eval_seconds_count 1",
    "forkd_exec_seconds_count 1",
    'forkd_http_request_seconds_count{route="/x/:id"} 1',
    "forkd_pool_waiting 4",
    "forkd_pool_size 5",
    'forkd_sandbox_private_bytes{sandbox="sb-1"} 4096',
  ]) {
    assert.ok(text.split("\n").includes(line), line);
  }
  assert.match(text, /^process_resident_memory_bytes \d+$/m);
  assert.match(text, /^process_cpu_seconds_total [\d.]+$/m);
});

test("an ended sandbox leaves no label, and two daemons share no values", async () => {
  const metrics = new Metrics({ version: "1", branchConcurrency: 4 });
  let privateBytes = new Map([["gone", 1]]);
  metrics.collectFrom(async () => ({ ...LEVELS, privateBytes }));
  await metrics.text();
  privateBytes = new Map([["here", 1]]);
  const text = await metrics.text();
  assert.doesNotMatch(text, /sandbox="gone"/);
  assert.match(text, /sandbox="here"/);
  assert.doesNotMatch(await new Metrics({ version: "1", branchConcurrency: 4 }).text(), /sandbox="here"/);
});
