// forkd ls

import { Command, InvalidArgumentError } from "commander";
import { connect } from "../daemon/connect.ts";
import { addPair } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { printSandboxes } from "../terminal/sandbox-table.ts";

import type { SandboxState } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { all?: boolean; tag?: string; state?: SandboxState[]; metadata?: Record<string, string>; quiet?: boolean };

const ALL_STATES: SandboxState[] = ["running", "paused", "suspended", "ended", "lost"];

export function lsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list live sandboxes; -a also those that ended")
    .option("-a, --all", "also those that ended or were lost")
    .option("--tag <tag>", "only forks of this snapshot")
    .option("--state <list>", "only these states: running, paused, suspended, ended, lost", parseStates)
    .option("--metadata <key=value>", "only those with this metadata; may be repeated", addPair)
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const forkd = await connect(cli);
      const state = opts.state ?? (opts.all ? ALL_STATES : undefined);
      const sandboxes = await forkd.listSandboxes({ tag: opts.tag, state, metadata: opts.metadata, signal: cli.signal });
      if (cli.json) printJson(sandboxes);
      else if (opts.quiet) for (const sandbox of sandboxes) printLine(sandbox.id);
      else if (sandboxes.length === 0) printLine("There are no sandboxes. Make some with 'forkd fork'.");
      else printSandboxes(sandboxes);
    });
}

function parseStates(list: string): SandboxState[] {
  return list.split(",").map((text) => {
    const state = ALL_STATES.find((known) => known === text.trim());
    if (!state) throw new InvalidArgumentError(`It must be some of ${ALL_STATES.join(", ")}.`);
    return state;
  });
}
