// forkd workspace delete

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { forEach } from "../../each.ts";

import type { Cli } from "../../cli.ts";

export function workspaceDeleteCommand(cli: Cli): Command {
  return new Command("delete")
    .alias("rm")
    .description("end workspaces with their sandboxes and their saved states")
    .argument("<names...>", "names")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const remove = async (name: string): Promise<unknown> => forkd.deleteWorkspace(name, { signal: cli.signal });
      await forEach(cli, names, remove, { step: "Deleting", done: "Deleted %s.", quiet: opts.quiet });
    });
}
