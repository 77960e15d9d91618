// forkd files mkdir, rm, ln

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { guestPlace } from "../../copy/guest-place.ts";
import { workingOnTerminal } from "../../terminal/progress.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { Cli } from "../../cli.ts";

export function filesMkdirCommand(cli: Cli): Command {
  return new Command("mkdir")
    .description("create a folder in a sandbox")
    .argument("<place>", "ID:/path")
    .option("-p, --parents", "also missing parents; an existing folder is no error")
    .option("-m, --mode <octal>", "such as 750 (default: 755)")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (text: string, opts: UserOption & { parents?: boolean; mode?: string }) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      await forkd.makeDirectory(sandbox, path, { parents: opts.parents, mode: opts.mode, user: opts.user, signal: cli.signal });
    });
}

export function filesRmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("remove a file, a link or an empty folder of a sandbox; with -r a folder with its contents")
    .argument("<place>", "ID:/path")
    .option("-r, --recursive", "a folder with its contents")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (text: string, opts: UserOption & { recursive?: boolean }) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      const request = { recursive: opts.recursive, user: opts.user, signal: cli.signal, timeoutMs: 0 };
      await workingOnTerminal(`Removing ${text}`, async () => forkd.removeFile(sandbox, path, request));
    });
}

export function filesLnCommand(cli: Cli): Command {
  return new Command("ln")
    .description("create a symbolic link in a sandbox")
    .argument("<target>", "target of the link, used unchanged")
    .argument("<place>", "ID:/path of the link")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (target: string, text: string, opts: UserOption) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      await forkd.makeSymlink(sandbox, target, path, { user: opts.user, signal: cli.signal });
    });
}
