// forkd files stat

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { guestPlace } from "../../copy/guest-place.ts";
import { formatBytes, printFacts, printJson } from "../../terminal/output.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { Cli } from "../../cli.ts";

export function filesStatCommand(cli: Cli): Command {
  return new Command("stat")
    .description("kind, size, mode, owner and time of a file of a sandbox")
    .argument("<place>", "ID:/path")
    .option("-L, --follow", "the target of a link instead of the link itself")
    .addOption(userOption())
    .option("--json", "print JSON")
    .action(async (text: string, opts: UserOption & { follow?: boolean }) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      const info = await forkd.statFile(sandbox, path, { follow: opts.follow, user: opts.user, signal: cli.signal });
      if (cli.json) {
        printJson(info);
        return;
      }
      printFacts([
        ["kind", info.kind],
        ["size", formatBytes(info.size)],
        ["mode", info.mode],
        ["owner", `${info.owner ?? ""} (${info.uid})`.trim()],
        ["group", `${info.group ?? ""} (${info.gid})`.trim()],
        ["changed", new Date(info.mtime_ms).toISOString()],
        ...(info.target === null ? [] : [["target", info.target] as const]),
      ]);
    });
}
