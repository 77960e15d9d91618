// forkd bench: the group of measurements.

import { Command } from "commander";
import { benchBranchCommand } from "./bench/branch.ts";
import { benchEvalCommand } from "./bench/eval.ts";
import { benchFanoutCommand } from "./bench/fanout.ts";

import type { Cli } from "../cli.ts";

export function benchCommand(cli: Cli): Command {
  return new Command("bench")
    .description("measure this machine: fan-out, branch pause, call latency")
    .addCommand(benchFanoutCommand(cli))
    .addCommand(benchBranchCommand(cli))
    .addCommand(benchEvalCommand(cli));
}
