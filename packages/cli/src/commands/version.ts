// forkd version

import { Command } from "commander";
import { printJson, printLine } from "../output.ts";
import { VERSION } from "../version.ts";

import type { Cli } from "../cli.ts";

export function versionCommand(cli: Cli): Command {
  return new Command("version")
    .description("print the versions of forkd and of what it runs on")
    .option("--json", "print JSON")
    .action(() => {
      const versions = { forkd: VERSION, node: process.versions.node, platform: `${process.platform}-${process.arch}` };
      if (cli.json) printJson(versions);
      else printLine(`forkd ${versions.forkd} (node ${versions.node}, ${versions.platform})`);
    });
}
