// forkd bench: the group of measurements. With --tag and no verb: one snapshot, through the daemon.

import { Command } from "commander";
import { benchDaemon, printDaemonBench } from "./bench/of-daemon.ts";
import { connect } from "../daemon/connect.ts";
import { forkCount } from "../options/values.ts";
import { printJson } from "../terminal/output.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { working } from "../terminal/progress.ts";
import { benchBranchCommand } from "./bench/branch.ts";
import { benchClusterCommand } from "./bench/cluster.ts";
import { benchDaemonCommand } from "./bench/daemon.ts";
import { benchE2bCommand } from "./bench/e2b.ts";
import { benchEvalCommand } from "./bench/eval.ts";
import { benchFanoutCommand } from "./bench/fanout.ts";
import { benchGatewayCommand } from "./bench/gateway.ts";
import { benchHubCommand } from "./bench/hub.ts";
import { benchInsideCommand } from "./bench/inside.ts";
import { benchKvmCommand } from "./bench/kvm.ts";
import { benchRecipeCommand } from "./bench/recipe.ts";
import { benchPackCommand } from "./bench/pack.ts";

import type { Cli } from "../cli.ts";

const PLUMBING = ["--per-child-netns [yes]"];

export function benchCommand(cli: Cli): Command {
  const command = new Command("bench")
    .description("measure this machine: fan-out, branch pause, call latency; with --tag, one snapshot through the daemon")
    .usage("[command] | --tag <tag>")
    .addCommand(benchFanoutCommand(cli))
    .addCommand(benchBranchCommand(cli))
    .addCommand(benchEvalCommand(cli))
    .addCommand(benchDaemonCommand(cli))
    .addCommand(benchInsideCommand(cli))
    .addCommand(benchHubCommand(cli))
    .addCommand(benchE2bCommand(cli))
    .addCommand(benchRecipeCommand(cli))
    .addCommand(benchPackCommand(cli))
    .addCommand(benchClusterCommand(cli))
    .addCommand(benchGatewayCommand(cli))
    .addCommand(benchKvmCommand(cli))
    .option("--tag <tag>", "measure spawn, exec, branch, fan-out and clean-up of this snapshot")
    .option("-n, --n <count>", "how many sandboxes", forkCount, 5)
    .option("--json", "print JSON");
  return acceptLegacyOptions(command, PLUMBING).action(async (opts: { tag?: string; n: number }) => {
    const { tag } = opts;
    if (tag === undefined) command.help({ error: true });
    else {
      noteLegacyOptions(command, PLUMBING);
      const forkd = await connect(cli);
      const report = await working(`Measuring ${tag}`, async (progress) => benchDaemon(cli, forkd, { tag, n: opts.n, progress }));
      if (cli.json) printJson(report);
      else printDaemonBench(report);
    }
  });
}
