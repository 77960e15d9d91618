// forkd gc

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { printGarbage } from "../garbage-table.ts";
import { working } from "../progress.ts";

import type { Cli } from "../cli.ts";

export function gcCommand(cli: Cli): Command {
  return new Command("gc")
    .description("remove what nothing refers to: half-made things, flat images, old guest kernels, left-over processes")
    .option("--dry-run", "only say what would go")
    .option("--json", "print JSON")
    .action(async (opts: { dryRun?: boolean }) => {
      const forkd = await connect(cli);
      const request = { dryRun: opts.dryRun === true, timeoutMs: 0, signal: cli.signal };
      const result = await working("Collecting garbage", async () => forkd.gc(request));
      printGarbage(cli, result);
    });
}
