// forkd version

import { Command } from "commander";
import { printJson, printLine } from "../terminal/output.ts";
import { VERSION } from "../installation.ts";

import type { Cli } from "../cli.ts";

export function versionCommand(cli: Cli): Command {
  return new Command("version")
    .description("print the versions of forkd and Node")
    .option("--json", "print JSON")
    .action(() => {
      const versions = { forkd: VERSION, node: process.versions.node, platform: `${process.platform}-${process.arch}` };
      if (cli.json) printJson(versions);
      else printLine(`forkd ${versions.forkd} (node ${versions.node}, ${versions.platform})`);
    });
}
