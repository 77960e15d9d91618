// forkd cleanup: gc, after asking

import { Command } from "commander";
import { ask } from "../terminal/ask.ts";
import { connect } from "../daemon/connect.ts";
import { printGarbage } from "../terminal/garbage-table.ts";
import { printLine } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";

export function cleanupCommand(cli: Cli): Command {
  return new Command("cleanup")
    .description("list unreferenced files, ask, and remove them")
    .option("-y, --yes", "do not ask; needed without a terminal")
    .option("--json", "print JSON; needs --yes")
    .action(async (opts: { yes?: boolean }) => {
      const forkd = await connect(cli);
      if (!opts.yes) {
        const found = await forkd.gc({ dryRun: true, timeoutMs: 0, signal: cli.signal });
        if (!cli.json || found.removed.length === 0) printGarbage(cli, found);
        if (found.removed.length === 0) return;
        if (!(await ask("Remove them?", { signal: cli.signal }))) {
          printLine("Nothing was removed.");
          return;
        }
      }
      printGarbage(cli, await working("Removing", async () => forkd.gc({ dryRun: false, timeoutMs: 0, signal: cli.signal })));
    });
}
