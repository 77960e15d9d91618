// forkd branch

import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { acceptLabels, labelsOf, type LabelFlags } from "../options/snapshot-labels.ts";
import { working } from "../terminal/progress.ts";
import { printBranch } from "../terminal/snapshot-table.ts";

import type { BranchOptions } from "forkd";
import type { Cli } from "../cli.ts";

type Options = LabelFlags & {
  tag?: string;
  wait: boolean;
  hold?: true;
  mode?: BranchOptions["mode"];
  quiet?: boolean;
};

export function branchCommand(cli: Cli): Command {
  const command = new Command("branch")
    .description("take a snapshot of a running sandbox, which continues")
    .argument("<id>", "id or name of the sandbox")
    .option("--tag <tag>", "tag of the new snapshot (default: a generated one)")
    .option("--no-wait", "return as soon as the sandbox runs again; the snapshot is ready a little later")
    .option("--hold", "freeze its processes meanwhile, and in forks until clock and randomness are the fork's own");
  return acceptLabels(command)
    .addOption(new Option("--mode <mode>", "accepted: all three are a short pause and a delta").choices(["full", "diff", "live"]))
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (id: string, opts: Options) => {
      const forkd = await connect(cli);
      const request = {
        tag: opts.tag,
        mode: opts.mode,
        ...labelsOf(opts),
        ...(opts.wait ? {} : { wait: false }),
        hold: opts.hold,
        signal: cli.signal,
      };
      const snapshot = await working(`Branching ${id}`, async () => forkd.branchSandbox(id, request));
      printBranch(cli, id, snapshot, opts);
    });
}
