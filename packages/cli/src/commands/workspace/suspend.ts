// forkd workspace suspend and resume

import { Command, Option } from "commander";
import { connect } from "../../daemon/connect.ts";
import { working } from "../../terminal/progress.ts";
import { printWorkspace } from "./list.ts";

import type { Cli } from "../../cli.ts";

export function workspaceSuspendCommand(cli: Cli): Command {
  return new Command("suspend")
    .description("save the state of a workspace and end its sandbox")
    .argument("<name>", "name of the workspace")
    .addOption(new Option("--diff", "accepted: only what changed is stored in any case").hideHelp())
    .option("--json", "print JSON")
    .action(async (name: string, opts: { diff?: boolean }) => {
      const forkd = await connect(cli);
      const request = { diff: opts.diff, signal: cli.signal };
      printWorkspace(cli, await working(`Suspending ${name}`, async () => forkd.suspendWorkspace(name, request)), {});
    });
}

export function workspaceResumeCommand(cli: Cli): Command {
  return new Command("resume")
    .description("continue from the saved state, in a new sandbox")
    .argument("<name>", "name of the workspace")
    .option("-q, --quiet", "print the id of its sandbox only")
    .option("--json", "print JSON")
    .action(async (name: string, opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      printWorkspace(cli, await working(`Resuming ${name}`, async () => forkd.resumeWorkspace(name, { signal: cli.signal })), opts);
    });
}
