// forkd token ls

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { formatTime } from "../../terminal/format.ts";
import { printJson, printLine, printTable } from "../../terminal/output.ts";

import type { Cli } from "../../cli.ts";

export function tokenLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the tokens, without their values")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const tokens = await forkd.listTokens({ signal: cli.signal });
      if (cli.json) printJson(tokens);
      else if (opts.quiet) for (const token of tokens) printLine(token.name);
      else if (tokens.length === 0) printLine("There are no tokens. Your own user needs none; make one with 'forkd token create'.");
      else
        printTable(tokens, [
          { title: "NAME", value: (token) => token.name },
          { title: "PROJECT", value: (token) => token.project },
          { title: "SCOPE", value: (token) => token.scope },
          { title: "SANDBOXES", value: (token) => (token.max_sandboxes === null ? "-" : String(token.max_sandboxes)), align: "right" },
          { title: "CREATED", value: (token) => formatTime(token.created_at_unix) },
          { title: "LAST USED", value: (token) => formatTime(token.last_used_unix) },
          { title: "EXPIRES", value: (token) => (token.expires_at_unix === null ? "-" : formatTime(token.expires_at_unix)) },
          { title: "SOURCE", value: (token) => token.source },
        ]);
    });
}
