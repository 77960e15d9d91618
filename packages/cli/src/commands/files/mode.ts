// forkd files chmod, chown

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { usageError } from "../../errors.ts";
import { guestPlace } from "../../copy/guest-place.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { Cli } from "../../cli.ts";

type Options = UserOption & { recursive?: boolean };

export function filesChmodCommand(cli: Cli): Command {
  return new Command("chmod")
    .description("set the mode of a file or a tree of a sandbox")
    .argument("<mode>", "octal, such as 644")
    .argument("<place>", "ID:/path")
    .option("-r, --recursive", "also everything below")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (mode: string, text: string, opts: Options) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      await forkd.chmodFile(sandbox, path, mode, { recursive: opts.recursive, user: opts.user, signal: cli.signal, timeoutMs: 0 });
    });
}

export function filesChownCommand(cli: Cli): Command {
  return new Command("chown")
    .description("set owner and group of a file or a tree of a sandbox")
    .argument("<owner>", "OWNER, OWNER:GROUP or :GROUP, names or numbers of the guest")
    .argument("<place>", "ID:/path")
    .option("-r, --recursive", "also everything below")
    .addOption(userOption())
    .option("--json", "print a failure as JSON")
    .action(async (who: string, text: string, opts: Options) => {
      const { sandbox, path } = guestPlace(text);
      const [owner, group, ...rest] = who.split(":");
      if ((!owner && !group) || rest.length > 0) throw usageError(`'${who}' must be OWNER, OWNER:GROUP or :GROUP.`);
      const forkd = await connect(cli);
      await forkd.chownFile(sandbox, path, {
        ...(owner ? { owner } : {}),
        ...(group ? { group } : {}),
        recursive: opts.recursive,
        user: opts.user,
        signal: cli.signal,
        timeoutMs: 0,
      });
    });
}
