// forkd branch

import { Command, Option } from "commander";
import { connect } from "../daemon.ts";
import { addPair } from "../options.ts";
import { working } from "../progress.ts";
import { printBranch } from "../snapshot-table.ts";

import type { BranchOptions } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { tag?: string; wait: boolean; metadata?: Record<string, string>; mode?: BranchOptions["mode"]; quiet?: boolean };

export function branchCommand(cli: Cli): Command {
  return new Command("branch")
    .description("take a snapshot of a running sandbox, which goes on")
    .argument("<id>", "id or name of the sandbox")
    .option("--tag <tag>", "tag of the new snapshot (default: one is made up)")
    .option("--no-wait", "return as soon as the sandbox runs again; the snapshot is ready a little later")
    .option("--metadata <key=value>", "kept for you; may be repeated", addPair)
    .addOption(new Option("--mode <mode>", "accepted: all three are a short pause and a delta").choices(["full", "diff", "live"]))
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (id: string, opts: Options) => {
      const forkd = await connect(cli);
      const request = {
        tag: opts.tag,
        mode: opts.mode,
        metadata: opts.metadata,
        ...(opts.wait ? {} : { wait: false }),
        signal: cli.signal,
      };
      const snapshot = await working(`Branching ${id}`, async () => forkd.branchSandbox(id, request));
      printBranch(cli, id, snapshot, opts);
    });
}
