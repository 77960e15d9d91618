// forkd files mv, cp

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { guestPlace, pathInSame } from "../../copy/guest-place.ts";
import { workingOnTerminal } from "../../terminal/progress.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { Controller } from "forkd";
import type { Cli } from "../../cli.ts";
import type { GuestPlace } from "../../copy/stream.ts";

type Options = UserOption & { overwrite?: boolean; recursive?: boolean };

export function filesMvCommand(cli: Cli): Command {
  const description = "move a file or folder of a sandbox to exactly this path";
  return insideSandbox(cli, new Command("mv").description(description), "Moving", async (forkd, from, to, { overwrite, user }) =>
    forkd.moveFile(from.sandbox, from.path, to, { overwrite, user, signal: cli.signal, timeoutMs: 0 }),
  );
}

export function filesCpCommand(cli: Cli): Command {
  const description = "copy inside a sandbox to exactly this path; 'forkd cp' copies in and out";
  const command = new Command("cp").description(description).option("-r, --recursive", "folders with their contents");
  return insideSandbox(cli, command, "Copying", async (forkd, from, to, { recursive, overwrite, user }) =>
    forkd.copyFile(from.sandbox, from.path, to, { recursive, overwrite, user, signal: cli.signal, timeoutMs: 0 }),
  );
}

/** Arguments and options of both */
function insideSandbox(
  cli: Cli,
  command: Command,
  doing: string,
  work: (forkd: Controller, from: GuestPlace, to: string, opts: Options) => Promise<unknown>,
): Command {
  return command
    .argument("<from>", "ID:/path")
    .argument("<to>", "/path in the same sandbox")
    .option("-f, --overwrite", "replace an existing file, link or empty folder")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (text: string, destination: string, opts: Options) => {
      const from = guestPlace(text);
      const to = pathInSame(destination, from);
      const forkd = await connect(cli);
      await workingOnTerminal(`${doing} ${text}`, async () => work(forkd, from, to, opts));
    });
}
