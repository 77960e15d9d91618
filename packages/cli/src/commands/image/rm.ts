// forkd image rm

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { forEach } from "../../each.ts";

import type { Cli } from "../../cli.ts";

export function imageRmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("remove names, and the data with the last name")
    .argument("<names...>", "names or ids")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const remove = async (name: string): Promise<unknown> => forkd.deleteImage(name, { signal: cli.signal });
      await forEach(cli, names, remove, { step: "Removing", done: "Removed %s.", quiet: opts.quiet, atATime: 1 });
    });
}
