// forkd workspace: the group of verbs about sandboxes that can be suspended and resumed.

import { Command } from "commander";
import { workspaceCreateCommand } from "./workspace/create.ts";
import { workspaceDeleteCommand } from "./workspace/delete.ts";
import { workspaceListCommand } from "./workspace/list.ts";
import { workspaceResumeCommand, workspaceSuspendCommand } from "./workspace/suspend.ts";

import type { Cli } from "../cli.ts";

export function workspaceCommand(cli: Cli): Command {
  return new Command("workspace")
    .description("sandboxes with a name that outlives them: create, suspend, resume, list, delete")
    .addCommand(workspaceCreateCommand(cli))
    .addCommand(workspaceSuspendCommand(cli))
    .addCommand(workspaceResumeCommand(cli))
    .addCommand(workspaceListCommand(cli))
    .addCommand(workspaceDeleteCommand(cli));
}
