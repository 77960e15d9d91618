// forkd gc

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { printGarbage } from "../terminal/garbage-table.ts";
import { working } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";

export function gcCommand(cli: Cli): Command {
  return new Command("gc")
    .description("remove unreferenced files: incomplete snapshots and images, flat images, old guest kernels; and orphaned processes")
    .option("--dry-run", "only list what would be removed")
    .option("--json", "print JSON")
    .action(async (opts: { dryRun?: boolean }) => {
      const forkd = await connect(cli);
      const request = { dryRun: opts.dryRun === true, timeoutMs: 0, signal: cli.signal };
      const result = await working("Collecting garbage", async () => forkd.gc(request));
      printGarbage(cli, result);
    });
}
