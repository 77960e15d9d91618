// forkd signal

import { constants } from "node:os";
import { Command, InvalidArgumentError } from "commander";
import { connect } from "../daemon/connect.ts";
import { printJson } from "../terminal/output.ts";

import type { SignalName } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { only?: boolean };

export function signalCommand(cli: Cli): Command {
  return new Command("signal")
    .description("send a signal to a process and its group; KILL returns when it has ended")
    .argument("<id>", "id or name of the sandbox")
    .argument("<process>", "id or tag of the process")
    .argument("[signal]", "such as INT, HUP or 9", parseSignal, "SIGTERM")
    .option("--only", "only to the process, not to its group")
    .option("--json", "print JSON")
    .action(async (id: string, process: string, signal: SignalName, { only }: Options) => {
      const forkd = await connect(cli);
      if (signal === "SIGKILL" && !only) await forkd.killProcess(id, process, { signal: cli.signal });
      else await forkd.signalProcess(id, process, signal, { scope: only ? "process" : "group", signal: cli.signal });
      if (cli.json) printJson({ process, signal, ok: true });
    });
}

/** INT, SIGINT, int, 2 */
function parseSignal(text: string): string {
  const name = `SIG${text.toUpperCase().replace(/^SIG/, "")}`;
  const found = Object.entries(constants.signals).find(([known, number]) => known === name || String(number) === text);
  if (!found) throw new InvalidArgumentError("It must be a signal such as INT, HUP or 9.");
  return found[0];
}
