// forkd logs

import { Command, Option } from "commander";
import { connect } from "../daemon.ts";
import { wholeNumber } from "../options.ts";
import { writeGuestText } from "../output.ts";

import type { LogsOptions } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { source: LogsOptions["source"]; follow?: boolean; tail?: number };

export function logsCommand(cli: Cli): Command {
  return new Command("logs")
    .description("print what the guest's console, the agent or the VMM wrote")
    .argument("<id>", "id or name")
    .addOption(new Option("--source <source>", "whose log").choices(["console", "agent", "vmm"]).default("console"))
    .option("-f, --follow", "go on with what comes, until Ctrl-C or its end")
    .option("--tail <lines>", "only the last lines", wholeNumber)
    .action(async (id: string, { source, follow, tail }: Options) => {
      const forkd = await connect(cli);
      for await (const text of forkd.logs(id, { source, follow, tail, signal: cli.signal })) await writeGuestText(text);
      cli.signal.throwIfAborted();
    });
}
