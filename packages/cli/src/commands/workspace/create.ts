// forkd workspace create

import { Command, Option } from "commander";
import { connect } from "../../daemon/connect.ts";
import { acceptLimits, limitsOf } from "../../options/limits.ts";
import { working } from "../../terminal/progress.ts";
import { printWorkspace } from "./list.ts";

import type { LimitOptions } from "forkd";
import type { Cli } from "../../cli.ts";

type Options = LimitOptions & { snapshot: string; perChildNetns?: boolean; quiet?: boolean };

export function workspaceCreateCommand(cli: Cli): Command {
  const command = new Command("create")
    .description("fork a snapshot under a name that outlives the sandbox")
    .argument("<name>", "name of the workspace")
    .requiredOption("--snapshot <tag>", "the snapshot to fork")
    .addOption(new Option("--per-child-netns").hideHelp())
    .option("-q, --quiet", "print the id of its sandbox only")
    .option("--json", "print JSON");
  return acceptLimits(command).action(async (name: string, { snapshot, quiet, ...opts }: Options) => {
    const forkd = await connect(cli);
    const request = { ...limitsOf(opts), perChildNetns: opts.perChildNetns, signal: cli.signal };
    const workspace = await working(`Making ${name}`, async () => forkd.createWorkspace(name, snapshot, request));
    printWorkspace(cli, workspace, { quiet });
  });
}
