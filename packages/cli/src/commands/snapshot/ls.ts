// forkd snapshot ls, and images, the older name

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { addPair } from "../../options/values.ts";
import { printJson, printLine, printNote } from "../../terminal/output.ts";
import { isInternal } from "../../recipe/layer.ts";
import { printSnapshots } from "../../terminal/snapshot-table.ts";

import type { Cli } from "../../cli.ts";

type Options = { all?: boolean; metadata?: Record<string, string>; quiet?: boolean };

export function snapshotLsCommand(cli: Cli): Command {
  return listCommand("ls", "list the snapshots").action(async (opts: Options) => list(cli, opts));
}

export function imagesCommand(cli: Cli): Command {
  return listCommand("images", "list the snapshots; 'forkd image ls' lists the images").action(async (opts: Options) => {
    await list(cli, opts);
    if (!cli.json && !opts.quiet) printNote("These are snapshots; 'forkd image ls' lists the images.");
  });
}

function listCommand(name: string, about: string): Command {
  return new Command(name)
    .description(about)
    .option("-a, --all", "also internal ones: build steps, states of suspended sandboxes; and forkd's own metadata")
    .option("--metadata <key=value>", "only those with this metadata; may be repeated", addPair)
    .option("-q, --quiet", "print tags only")
    .option("--json", "print JSON");
}

async function list(cli: Cli, opts: Options): Promise<void> {
  const forkd = await connect(cli);
  const found = await forkd.listSnapshots({ metadata: opts.metadata, signal: cli.signal });
  const snapshots = opts.all || opts.metadata ? found : found.filter((snapshot) => !isInternal(snapshot));
  if (cli.json) printJson(snapshots);
  else if (opts.quiet) for (const snapshot of snapshots) printLine(snapshot.tag);
  else if (snapshots.length === 0) printLine("There are no snapshots. Make one with 'forkd snapshot create'.");
  else printSnapshots(snapshots, found, { all: opts.all === true });
}
