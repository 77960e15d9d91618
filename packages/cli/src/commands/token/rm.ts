// forkd token rm

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { forEach } from "../../each.ts";

import type { Cli } from "../../cli.ts";

export function tokenRmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("revoke tokens, with immediate effect")
    .argument("<names...>", "names")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const remove = async (name: string): Promise<unknown> => forkd.deleteToken(name, { signal: cli.signal });
      await forEach(cli, names, remove, { step: "Revoking", done: "Revoked %s.", quiet: opts.quiet });
    });
}
