// forkd snapshot rm, and rmi, the older name

import { Command, Option } from "commander";
import { connect } from "../../daemon.ts";
import { forEach } from "../../each.ts";
import { BUILD_KEY, isLayer } from "../../recipe/layer.ts";

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
    .option("--force", "take the tag away; what is still needed of it stays until nothing needs it")
    .option("-q, --quiet", "print tags only")
    .option("--json", "print JSON")
    .action(async (tags: string[], opts: Options) => {
      const forkd = await connect(cli);
      const { signal } = cli;
      const remove = async (tag: string): Promise<void> => {
        await forkd.deleteSnapshot(tag, { cascade: opts.cascade, force: opts.force, signal });
        const layers = await forkd.listSnapshots({ metadata: { [BUILD_KEY]: tag }, signal });
        for (const layer of layers.filter(isLayer)) await forkd.deleteSnapshot(layer.tag, { force: true, signal });
      };
      await forEach(cli, tags, remove, { step: "Removing", done: "Removed %s.", quiet: opts.quiet, atATime: 1 });
    });
}
