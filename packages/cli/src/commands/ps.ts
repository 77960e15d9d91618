// forkd ps

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatAge } from "../terminal/format.ts";
import { printJson, printLine, printTable } from "../terminal/output.ts";

import type { ProcessInfo } from "forkd";
import type { Cli } from "../cli.ts";
import type { Column } from "../terminal/output.ts";

type Options = { all?: boolean; quiet?: boolean };

const COLUMNS: Column<ProcessInfo>[] = [
  { title: "ID", value: (info) => String(info.id), align: "right" },
  { title: "PID", value: (info) => String(info.pid), align: "right" },
  { title: "TAG", value: (info) => info.tag ?? "-" },
  { title: "USER", value: (info) => info.user },
  { title: "STATE", value: stateOf, style: (text) => (text === "running" ? "green" : undefined) },
  { title: "AGE", value: (info) => formatAge(info.started_at_ms / 1000), align: "right" },
  { title: "TTY", value: (info) => (info.terminal ? "yes" : "-") },
  { title: "COMMAND", value: (info) => info.args.join(" "), wraps: true },
];

export function psCommand(cli: Cli): Command {
  return new Command("ps")
    .description("list running processes of a sandbox; -a also those that ended")
    .argument("<id>", "id or name of the sandbox")
    .option("-a, --all", "also the newest that have ended")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (id: string, opts: Options) => listProcesses(cli, id, opts));
}

export async function listProcesses(cli: Cli, id: string, opts: Options): Promise<void> {
  const forkd = await connect(cli);
  const known = await forkd.listProcesses(id, { signal: cli.signal });
  const shown = opts.all ? known : known.filter(({ state }) => state === "running");
  if (cli.json) printJson(shown);
  else if (opts.quiet) for (const info of shown) printLine(String(info.id));
  else if (shown.length === 0) printLine("There are no processes. Start one with 'forkd exec'.");
  else printTable(shown, COLUMNS);
}

function stateOf(info: ProcessInfo): string {
  if (info.state === "running") return "running";
  if (info.timed_out) return "timed out";
  return info.signal ?? `exit ${info.exit_code}`;
}
