// The benchmarks of the README, with as few VMs as possible: each prints its figures.
// Runs in make test-all only: they measure, and other tests cover the features.

import assert from "node:assert/strict";
import { test } from "node:test";
import { benchBranch, benchEval, benchFanout, benchGateway } from "@forkd/bench";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { patience } from "../helpers/patience.ts";
import { ensurePythonImage } from "../helpers/vm.ts";

const timeout = 10 * patience();
const opts = { progress: () => undefined, signal: AbortSignal.timeout(3 * timeout) };

test("fanout: forks, the floor, the pool, and containers or the reason for their absence", { timeout }, async () => {
  await ensurePythonImage(await prepareHome(resolveHome()));
  const report = await benchFanout({ ...opts, n: 2, parallelism: 2 });
  assert.equal(report.failed, 0);
  for (const ms of [report.forkd_ms, report.restore_ms, report.forkd_pooled_ms, report.floor_ms, report.cold_boot_ms]) assert.ok(ms > 0);
  assert.ok(report.clone_ms === null || (report.clone_ms > 0 && (report.clone_cpu_ms ?? 0) > 0));
  assert.ok(report.restore_cpu_ms > 0 && report.one_ms.p50 > 0 && report.pss_mib_per_child > 0);
  assert.ok(report.runc_ms === null ? report.runc_skipped : report.runc_ms > 0);
});

test("branch: pauses measured by the host and by the guest", { timeout }, async () => {
  const { rows } = await benchBranch({ ...opts, branches: 2, ramMib: [256], changedMib: [1] });
  assert.equal(rows.length, 1);
  const [row] = rows;
  assert.ok(row && row.pause_host_ms.p50 > 0 && row.pause_guest_ms.p50 > 0 && row.ready_ms > 0 && row.stored_bytes > 0);
});

test("eval: a warm interpreter compared with a fresh one", { timeout }, async () => {
  const { eval_ms, exec_python_ms } = await benchEval({ ...opts, rounds: 3 });
  assert.ok(eval_ms.p50 < exec_python_ms.p50);
});

test("gateway: evals and forks by both ways", { timeout }, async () => {
  const { eval_ms, fork_ms } = await benchGateway({ ...opts, evals: 3, forks: 2 });
  for (const { direct, through } of [eval_ms, fork_ms]) assert.ok(direct.p50 > 0 && through.p50 > 0);
});
