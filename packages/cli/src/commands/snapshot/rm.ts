// forkd snapshot rm, and rmi, the older name

import { Command, Option } from "commander";
import { connect } from "../../daemon/connect.ts";
import { forEach } from "../../each.ts";

import type { Cli } from "../../cli.ts";

type Options = { cascade?: boolean; force?: boolean; quiet?: boolean };

export function snapshotRmCommand(cli: Cli): Command {
  return build(cli, "rm");
}

export function rmiCommand(cli: Cli): Command {
  return build(cli, "rmi");
}

function build(cli: Cli, name: string): Command {
  return new Command(name)
    .description("remove snapshots")
    .argument("<tags...>", "tags")
    .addOption(new Option("--cascade", "also the snapshots that build on it").conflicts("force"))
    .option("--force", "remove the tag; data that others need stays until nothing needs it")
    .option("-q, --quiet", "print tags only")
    .option("--json", "print JSON")
    .action(async (tags: string[], opts: Options) => {
      const forkd = await connect(cli);
      const { signal } = cli;
      const remove = async (tag: string): Promise<void> => forkd.deleteSnapshot(tag, { cascade: opts.cascade, force: opts.force, signal });
      await forEach(cli, tags, remove, { step: "Removing", done: "Removed %s.", quiet: opts.quiet, atATime: 1 });
    });
}
