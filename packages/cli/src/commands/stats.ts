// forkd stats

import { setTimeout as sleep } from "node:timers/promises";
import { Command } from "commander";
import { connect } from "../daemon.ts";
import { formatBytes, formatTable, isTerminal, printJson, printLine, rewriteScreen } from "../output.ts";

import type { SandboxStats } from "forkd";
import type { Cli } from "../cli.ts";

const INTERVAL_MS = 2000;

/** CPU time and when it was read, to tell the use between two readings */
type Reading = { cpuMs: number; at: number };

export function statsCommand(cli: Cli): Command {
  return new Command("stats")
    .description("print what every live sandbox uses: CPU time, memory of its own, memory of its process, disk space of its own")
    .option("-w, --watch", "again and again, on a terminal; once otherwise")
    .option("--json", "print JSON")
    .action(async (opts: { watch?: boolean }) => {
      const forkd = await connect(cli);
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
    });
}

function statsTable(stats: SandboxStats[], before?: Map<string, Reading>): string {
  if (stats.length === 0) return "There are no sandboxes.";
  const use = (row: SandboxStats): string => {
    const last = before?.get(row.id);
    if (!last) return "-";
    return `${Math.round(((row.cpu_ms - last.cpuMs) / Math.max(1, Date.now() - last.at)) * 100)} %`;
  };
  return formatTable(stats, [
    { title: "ID", value: (row) => row.id },
    { title: "NAME", value: (row) => row.name ?? "-" },
    { title: "STATE", value: (row) => row.state },
    ...(before ? [{ title: "CPU", value: use, align: "right" as const }] : []),
    { title: "CPU TIME", value: (row) => `${(row.cpu_ms / 1000).toFixed(2)} s`, align: "right" },
    { title: "OWN MEMORY", value: (row) => formatBytes(row.private_guest_bytes), align: "right" },
    { title: "PROCESS", value: (row) => formatBytes(row.pss_bytes), align: "right" },
    { title: "OWN DISK", value: (row) => (row.disk_bytes === null ? "-" : formatBytes(row.disk_bytes)), align: "right" },
  ]);
}
