// The report of forkd bench kvm, from runs as data.

import assert from "node:assert/strict";
import { test } from "node:test";
import { figuresOf, kvmText, type KvmReport } from "@forkd/bench";

const machine = { cpu: "A CPU", cores: 2, memory_gib: 24, host_kernel: "6.12", qemu: "7.2.22", accelerator: "kvm", date: "2026-01-01" };
const ok = { what: "boot", ok: true, ms: 900, detail: "500 ms to the agent" };
const bad = { what: "network", ok: false, ms: 3, detail: "refused | a\nline" };

const REPORT: KvmReport = {
  machine,
  date: "2026-01-01",
  runs: [
    { accelerator: "kvm", skipped: null, smoke: [ok, bad], figures: { "fanout forkd_ms": 12.5 }, failures: { hub: "no registry" } },
    { accelerator: "tcg", skipped: null, smoke: [ok], figures: { "fanout forkd_ms": 99, "eval first_eval_ms": 3 }, failures: {} },
  ],
};

test("the report has both halves side by side, with failures", () => {
  const text = kvmText(REPORT);
  assert.match(text, /^### A CPU, 2 cores, 24 GiB, Linux 6\.12, QEMU 7\.2\.22, 2026-01-01$/m);
  assert.match(text, /^\| network \| FAILED \| 3 ms \| refused \\\| a line \|$/m);
  assert.match(text, /^\| fanout forkd_ms \| 12\.5 \| 99 \|$/m);
  assert.match(text, /^\| eval first_eval_ms \| {2}\| 3 \|$/m);
  assert.match(text, /^- kvm, hub: not measured: no registry$/m);
});

test("without KVM the report has the reason and no figure", () => {
  const [, tcg] = REPORT.runs;
  assert.ok(tcg);
  const kvm = { accelerator: "kvm" as const, skipped: "there is no /dev/kvm", smoke: [], figures: {}, failures: {} };
  const text = kvmText({ ...REPORT, runs: [kvm, tcg] });
  assert.match(text, /^\*\*kvm\*\*: not tried: there is no \/dev\/kvm$/m);
  assert.match(text, /^\| fanout forkd_ms \| {2}\| 99 \|$/m);
});

test("every number of a benchmark is a figure, by its path", () => {
  const report = { machine, method: "m", n: 2, eval_ms: { p50: 1.239 }, rows: [{ pause: 4 }], skipped: null, goals: [{ value: 1 }] };
  assert.deepEqual(figuresOf(report), [
    ["n", 2],
    ["eval_ms.p50", 1.24],
    ["rows.0.pause", 4],
  ]);
});
