// forkd rename

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { printJson, printLine } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";

export function renameCommand(cli: Cli): Command {
  return new Command("rename")
    .description("give a sandbox a name, which every verb takes in place of its id")
    .argument("<id>", "id or name")
    .argument("<name>", "the new name")
    .option("--json", "print JSON")
    .action(async (id: string, name: string) => {
      const forkd = await connect(cli);
      const sandbox = await forkd.updateSandbox(id, { name, signal: cli.signal });
      if (cli.json) printJson(sandbox);
      else printLine(`${sandbox.id} is ${name}.`);
    });
}
