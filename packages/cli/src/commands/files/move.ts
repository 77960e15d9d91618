// forkd files mv, cp

import { Command } from "commander";
import { connect } from "../../daemon.ts";
import { guestPlace, pathInSame } from "../../guest-place.ts";
import { workingOnTerminal } from "../../progress.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { Cli } from "../../cli.ts";

type Options = UserOption & { overwrite?: boolean; recursive?: boolean };

export function filesMvCommand(cli: Cli): Command {
  return new Command("mv")
    .description("give a file or folder of a sandbox exactly this other path")
    .argument("<from>", "ID:/path")
    .argument("<to>", "/path in the same sandbox")
    .option("-f, --overwrite", "replace a file, a link or an empty folder that is there")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (text: string, destination: string, opts: Options) => {
      const from = guestPlace(text);
      const to = pathInSame(destination, from);
      const forkd = await connect(cli);
      const request = { overwrite: opts.overwrite, user: opts.user, signal: cli.signal, timeoutMs: 0 };
      await workingOnTerminal(`Moving ${text}`, async () => forkd.moveFile(from.sandbox, from.path, to, request));
    });
}

export function filesCpCommand(cli: Cli): Command {
  return new Command("cp")
    .description("copy inside a sandbox to exactly this path; 'forkd cp' copies in and out")
    .argument("<from>", "ID:/path")
    .argument("<to>", "/path in the same sandbox")
    .option("-r, --recursive", "folders with all they hold")
    .option("-f, --overwrite", "replace a file, a link or an empty folder that is there")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (text: string, destination: string, opts: Options) => {
      const from = guestPlace(text);
      const to = pathInSame(destination, from);
      const forkd = await connect(cli);
      const { recursive, overwrite, user } = opts;
      const request = { recursive, overwrite, user, signal: cli.signal, timeoutMs: 0 };
      await workingOnTerminal(`Copying ${text}`, async () => forkd.copyFile(from.sandbox, from.path, to, request));
    });
}
