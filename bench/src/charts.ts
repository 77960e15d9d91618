// The chart of each benchmark.

import { barChart } from "./svg.ts";

import type { BranchReport } from "./branch.ts";
import type { EvalReport } from "./eval.ts";
import type { FanoutReport } from "./fanout.ts";
import type { Machine } from "./machine.ts";

export function fanoutChart(report: FanoutReport): string {
  const seconds = (label: string, ms: number, highlight = false): { label: string; value: number; note: string; highlight: boolean } => ({
    label,
    value: ms,
    note: `${(ms / 1000).toFixed(2)} s`,
    highlight,
  });
  return barChart(`${report.n} sandboxes, all answered`, machineLine(report.machine), [
    ...(report.clone_ms === null ? [] : [seconds("forkd, with a VMM to clone", report.clone_ms, true)]),
    seconds("forkd", report.forkd_ms, true),
    seconds("forkd, from the pool", report.forkd_pooled_ms, true),
    seconds("forkd, restored", report.restore_ms, true),
    seconds("bare QEMU (floor)", report.floor_ms),
    ...(report.runc_ms === null ? [] : [seconds("runc containers", report.runc_ms)]),
    seconds("one cold boot", report.cold_boot_ms),
  ]);
}

export function branchChart(report: BranchReport): string {
  return barChart(
    "Pause of the source at a branch, median",
    machineLine(report.machine),
    report.rows.map((row) => ({
      label: `${row.ram_mib} MiB RAM, ${row.changed_mib} MiB changed`,
      value: row.pause_host_ms.p50,
      note: `${row.pause_host_ms.p50.toFixed(1)} ms (p99 ${row.pause_host_ms.p99.toFixed(1)})`,
      highlight: true,
    })),
  );
}

export function evalChart(report: EvalReport): string {
  return barChart("One call into a warm sandbox, median", machineLine(report.machine), [
    { label: "eval in the warm kernel", value: report.eval_ms.p50, note: `${report.eval_ms.p50.toFixed(2)} ms`, highlight: true },
    { label: "exec of true", value: report.exec_true_ms.p50, note: `${report.exec_true_ms.p50.toFixed(2)} ms` },
    { label: "exec of a fresh python3", value: report.exec_python_ms.p50, note: `${report.exec_python_ms.p50.toFixed(1)} ms` },
  ]);
}

function machineLine(machine: Machine): string {
  return `${machine.cpu}, ${machine.cores} cores, QEMU ${machine.qemu} (${machine.accelerator}), Linux ${machine.host_kernel}, ${machine.date.slice(0, 10)}`;
}
