// forkd where

import { Command } from "commander";
import { printFacts, printJson } from "../terminal/output.ts";
import { paths } from "../daemon/paths.ts";

import type { Cli } from "../cli.ts";

export function whereCommand(cli: Cli): Command {
  return new Command("where")
    .description("print the paths that forkd uses; FORKD_HOME and FORKD_RUN change them")
    .option("--json", "print JSON")
    .action(() => {
      const all = paths();
      if (cli.json) printJson(all);
      else printFacts(Object.entries(all));
    });
}
