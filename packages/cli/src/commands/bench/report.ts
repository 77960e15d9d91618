// The parts of a report that all benchmarks share.

import { mkdir, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { InvalidArgumentError } from "commander";
import { printJson, printLine, printTable } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";

import type { BenchOptions, Goal, Host, Machine } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Report = { machine: Host | Machine; method: string };

/** Writes the chart, then prints JSON or the table with method and machine */
export async function printReport(report: Report, opts: { json: boolean; svgFile: string; svg: string; table: () => void }): Promise<void> {
  const file = await writeChart(opts.svgFile, opts.svg);
  if (opts.json) {
    printJson(report);
    return;
  }
  opts.table();
  printMethod(report);
  printLine(`Chart: ${file}`);
}

/** Writes a chart, and returns the absolute path of its file */
export async function writeChart(svgFile: string, svg: string): Promise<string> {
  const file = resolve(svgFile);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, svg);
  return file;
}

/** Runs a measurement with goals, and prints JSON, or its own table and the goals with method and machine */
export async function measure<R extends Report & { goals: readonly Goal[] }>(
  cli: Cli,
  run: (given: BenchOptions) => Promise<R>,
  printFigures: (report: R) => void,
): Promise<void> {
  using display = showProgress();
  const report = await run({ signal: cli.signal, progress: display.onEvent });
  display[Symbol.dispose]();
  if (cli.json) {
    printJson(report);
    return;
  }
  printFigures(report);
  printGoals(report.goals);
  printMethod(report);
}

function printGoals(goals: readonly Goal[]): void {
  printLine();
  printTable(goals, [
    { title: "GOAL", value: ({ what }) => what },
    { title: "MEASURED", value: ({ value, unit }) => `${value} ${unit}`.trim(), align: "right" },
    { title: "WANTED", value: (goal) => wanted(goal), align: "right" },
    { title: "", value: ({ reached }) => (reached ? "reached" : "short") },
  ]);
}

/** Method and machine */
export function printMethod({ machine, method }: Report): void {
  printLine();
  printLine(`Method: ${method}.`);
  const engine = "qemu" in machine ? `, QEMU ${machine.qemu} (${machine.accelerator})` : "";
  printLine(`Machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memory_gib} GiB, Linux ${machine.host_kernel}${engine}.`);
}

export function positiveInteger(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("It must be a whole number of at least 1.");
  return value;
}

export function integerList(text: string): number[] {
  return text.split(",").map(positiveInteger);
}

function wanted({ atMost, atLeast, unit }: Goal): string {
  return atMost === undefined ? `≥ ${atLeast} ${unit}`.trim() : `≤ ${atMost} ${unit}`.trim();
}
