// forkd logs

import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { wholeNumber } from "../options/values.ts";
import { printNote, writeGuestText } from "../terminal/output.ts";

import type { LogsOptions } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { source: LogsOptions["source"]; follow?: boolean; tail?: number };

/** Time without a line after which `logs -f` says where other output is */
const SILENCE_MS = 1000;

export function logsCommand(cli: Cli): Command {
  return new Command("logs")
    .description("print the log of the guest's console, the agent or the VMM since the fork; for the output of programs see ps and attach")
    .argument("<id>", "id or name")
    .addOption(new Option("--source <source>", "whose log").choices(["console", "agent", "vmm"]).default("console"))
    .option("-f, --follow", "follow the log until Ctrl-C or the end of the sandbox")
    .option("--tail <lines>", "only the last lines", wholeNumber)
    .action(async (id: string, { source, follow, tail }: Options) => {
      const forkd = await connect(cli);
      cli.isViewer = true;
      let isSilent = true;
      const note = (): void => {
        if (isSilent && tail !== 0) printNote(emptyNote(id, source));
        isSilent = false;
      };
      const timer = follow ? setTimeout(note, SILENCE_MS) : undefined;
      try {
        for await (const text of forkd.logs(id, { source, follow, tail, signal: cli.signal })) {
          isSilent = false;
          await writeGuestText(text);
        }
      } finally {
        clearTimeout(timer);
      }
      cli.signal.throwIfAborted();
      note();
    });
}

/** A fork usually has an empty console: the boot was logged by the parent */
function emptyNote(id: string, source: LogsOptions["source"]): string {
  if (source === "vmm") return `The VMM of ${id} wrote nothing.`;
  return [
    `The ${source} of ${id} wrote nothing since the fork; what its parent wrote at boot is not part of it.`,
    `Programs keep their own output: 'forkd ps -a ${id}' lists them, 'forkd attach ${id} PROCESS' shows it.`,
  ].join("\n");
}
