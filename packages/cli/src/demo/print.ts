// The demo's report as text: a table, a tree, the timings.

import { colour, formatBytes, printLine, printTable } from "../terminal/output.ts";

import type { DemoChild, DemoReport } from "./run.ts";

export function printDemo(report: DemoReport): void {
  const isolation =
    report.accelerator === "kvm" ? "hardware isolation" : "emulated: for development and trusted code, not a security boundary";
  printLine(`Accelerator: ${report.accelerator} (${report.reason}); ${isolation}.`);
  printLine();
  printTable(
    [...report.children, ...report.grandchildren],
    [
      { title: "SANDBOX", value: (row) => row.id },
      { title: "FORKED FROM", value: (row) => (report.children.includes(row) ? report.parent.tag : report.branch.tag) },
      { title: "FORK MS", value: (row) => row.fork_ms.toFixed(1), align: "right" },
      { title: "FIRST EVAL MS", value: (row) => row.first_eval_ms.toFixed(1), align: "right" },
      { title: "VALUE", value: (row) => JSON.stringify(row.value) },
    ],
  );
  printLine();
  printTree(report);
  printLine();
  const { parent, branch } = report;
  printLine(`Parent: booted in ${ms(parent.boot_ms)}, warmed in ${ms(parent.warm_up_ms)}, frozen in ${ms(parent.freeze_ms)}.`);
  printLine(
    `Children: all ${report.children.length} had answered ${ms(report.children_ms)} after the request; the times above include waiting for their turn.`,
  );
  printLine(
    `Branch: the source was paused for ${ms(branch.pause_ms)}; ${formatBytes(branch.delta_bytes)} stored; 3 grandchildren ready ${ms(branch.ready_ms)} after the request.`,
  );
  printLine(`The source continued and got ${JSON.stringify(report.source_value)}, as did every grandchild before it diverged.`);
  printLine(
    report.leftovers === 0
      ? "Nothing is left: no process, no socket, no file."
      : `${report.leftovers} things are left in the runtime folder.`,
  );
}

function printTree(report: DemoReport): void {
  printLine(colour("bold", report.parent.tag));
  report.children.forEach((child, i) => {
    const last = i === report.children.length - 1;
    printLine(`${last ? "└─" : "├─"} ${child.id}`);
    if (child.id === report.branch.source) printBranch(report, last ? "   " : "│  ");
  });
}

function printBranch(report: DemoReport, indent: string): void {
  printLine(`${indent}└─ ${colour("bold", report.branch.tag)}`);
  report.grandchildren.forEach((child: DemoChild, i) => {
    printLine(`${indent}   ${i === report.grandchildren.length - 1 ? "└─" : "├─"} ${child.id}  ${JSON.stringify(child.value)}`);
  });
}

function ms(value: number): string {
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(1)} ms`;
}
