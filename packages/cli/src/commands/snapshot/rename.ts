// forkd snapshot rename

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { printJson, printLine } from "../../terminal/output.ts";

import type { Cli } from "../../cli.ts";

export function snapshotRenameCommand(cli: Cli): Command {
  return new Command("rename")
    .description("give a snapshot another tag")
    .argument("<tag>", "tag of the snapshot")
    .argument("<new>", "the new tag")
    .option("--json", "print JSON")
    .action(async (tag: string, next: string) => {
      const forkd = await connect(cli);
      const snapshot = await forkd.updateSnapshot(tag, { tag: next, signal: cli.signal });
      if (cli.json) printJson(snapshot);
      else printLine(`${tag} is ${snapshot.tag} now.`);
    });
}
