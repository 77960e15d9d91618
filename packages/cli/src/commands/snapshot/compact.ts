// forkd snapshot compact

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { usageError } from "../../errors.ts";
import { working } from "../../terminal/progress.ts";
import { printSnapshot } from "../../terminal/snapshot-table.ts";

import type { Cli } from "../../cli.ts";

type Options = { from?: string; to?: string; quiet?: boolean };

export function snapshotCompactCommand(cli: Cli): Command {
  return build(cli, "snapshot-compact");
}

export function snapshotCompactSubcommand(cli: Cli): Command {
  return build(cli, "compact");
}

function build(cli: Cli, name: string): Command {
  return new Command(name)
    .description("make a copy of a snapshot that builds on no other")
    .argument("[from]", "tag of the snapshot")
    .argument("[to]", "tag of the copy")
    .option("--from <tag>", "the same, as options")
    .option("--to <tag>", "the same, as options")
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (first: string | undefined, second: string | undefined, opts: Options) => {
      const from = first ?? opts.from;
      const to = second ?? opts.to;
      if (from === undefined || to === undefined) throw usageError("Name both: forkd snapshot compact FROM TO.");
      const forkd = await connect(cli);
      const snapshot = await working(`Copying ${from} to ${to}`, async () => forkd.compactSnapshot(from, to, { signal: cli.signal }));
      printSnapshot(cli, snapshot, opts);
    });
}
