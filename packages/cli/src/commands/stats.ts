// forkd stats

import { setTimeout as sleep } from "node:timers/promises";
import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatBytes, formatTable, isTerminal, printJson, printLine, rewriteScreen } from "../terminal/output.ts";

import type { SandboxStats } from "forkd";
import type { Cli } from "../cli.ts";

const INTERVAL_MS = 2000;

/** CPU time and the time of the reading, to compute the usage between two readings */
type Reading = { cpuMs: number; at: number };

export function statsCommand(cli: Cli): Command {
  return new Command("stats")
    .description("print the usage of every live sandbox: CPU time, private memory, memory of its process, private disk space")
    .option("-w, --watch", "on a terminal, repeat until Ctrl-C")
    .option("--json", "print JSON")
    .action(async (opts: { watch?: boolean }) => showStats(cli, { watch: opts.watch === true }));
}

async function showStats(cli: Cli, opts: { watch: boolean }): Promise<void> {
  const forkd = await connect(cli);
  cli.isViewer = true;
  if (!opts.watch || cli.json || !isTerminal()) {
    const stats = await forkd.stats({ signal: cli.signal });
    if (cli.json) printJson(stats);
    else printLine(statsTable(stats));
    return;
  }
  let before = new Map<string, Reading>();
  for (;;) {
    const stats = await forkd.stats({ signal: cli.signal });
    rewriteScreen(statsTable(stats, before));
    before = new Map(stats.map((row) => [row.id, { cpuMs: row.cpu_ms, at: Date.now() }]));
    await sleep(INTERVAL_MS, undefined, { signal: cli.signal });
  }
}

function statsTable(stats: SandboxStats[], before?: Map<string, Reading>): string {
  if (stats.length === 0) return "There are no sandboxes.";
  const use = (row: SandboxStats): string => {
    const last = before?.get(row.id);
    if (!last) return "-";
    return `${Math.round(((row.cpu_ms - last.cpuMs) / Math.max(1, Date.now() - last.at)) * 100)} %`;
  };
  return formatTable(stats, [
    { title: "SANDBOX", value: (row) => row.name ?? row.id, wraps: true },
    { title: "STATE", value: (row) => row.state },
    ...(before ? [{ title: "CPU", value: use, align: "right" as const }] : []),
    { title: "CPU TIME", value: (row) => `${(row.cpu_ms / 1000).toFixed(1)} s`, align: "right" },
    { title: "MEMORY", value: (row) => formatBytes(row.private_guest_bytes), align: "right" },
    { title: "PROCESS", value: (row) => formatBytes(row.pss_bytes), align: "right" },
    { title: "DISK", value: (row) => (row.disk_bytes === null ? "-" : formatBytes(row.disk_bytes)), align: "right", optional: true },
  ]);
}
