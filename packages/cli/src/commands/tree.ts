// forkd tree

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { printJson, printLine, printPlain } from "../terminal/output.ts";
import { isUtf8, treeLines } from "../terminal/tree-lines.ts";

import type { Cli } from "../cli.ts";

export function treeCommand(cli: Cli): Command {
  return new Command("tree")
    .description("draw the lineage: snapshots in brackets, below each its sandboxes and the snapshots that build on it")
    .option("--json", "print JSON")
    .action(async () => {
      const forkd = await connect(cli);
      const tree = await forkd.tree({ signal: cli.signal });
      if (cli.json) printJson(tree);
      else if (tree.roots.length === 0) printLine("There are no snapshots. Make one with 'forkd snapshot create'.");
      else for (const line of treeLines(tree, { utf8: isUtf8() })) printPlain(line);
    });
}
