// forkd snapshot pool

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { wholeNumber } from "../../options/values.ts";
import { printJson, printLine } from "../../terminal/output.ts";

import type { Cli } from "../../cli.ts";

export function snapshotPoolCommand(cli: Cli): Command {
  return new Command("pool")
    .description("set how many VMMs are started in advance for forks of a snapshot; 0 for none")
    .argument("<tag>", "tag of the snapshot")
    .argument("<count>", "how many", wholeNumber)
    .option("--json", "print JSON")
    .action(async (tag: string, pool: number) => {
      const forkd = await connect(cli);
      const snapshot = await forkd.updateSnapshot(tag, { pool, signal: cli.signal });
      if (cli.json) printJson(snapshot);
      else printLine(`VMMs started in advance for forks of ${snapshot.tag}: ${snapshot.pool}`);
    });
}
