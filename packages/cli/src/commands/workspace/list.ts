// forkd workspace list

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { formatAge } from "../../terminal/format.ts";
import { printJson, printLine, printTable, printWarnings } from "../../terminal/output.ts";

import type { WorkspaceInfo } from "forkd";
import type { Cli } from "../../cli.ts";

export function workspaceListCommand(cli: Cli): Command {
  return new Command("list")
    .alias("ls")
    .description("list the workspaces")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const workspaces = await forkd.listWorkspaces({ signal: cli.signal });
      if (cli.json) printJson(workspaces);
      else if (opts.quiet) for (const workspace of workspaces) printLine(workspace.name);
      else if (workspaces.length === 0) printLine("There are no workspaces. Make one with 'forkd workspace create'.");
      else
        printTable(workspaces, [
          { title: "NAME", value: (workspace) => workspace.name },
          { title: "STATUS", value: (workspace) => workspace.status },
          { title: "SANDBOX", value: (workspace) => workspace.live_sandbox_id ?? "-" },
          { title: "SNAPSHOT", value: (workspace) => workspace.current_state_tag ?? workspace.source_snapshot_tag },
          { title: "AGE", value: (workspace) => formatAge(workspace.created_at_unix), align: "right" },
          { title: "LAST USED", value: (workspace) => `${formatAge(workspace.last_active_unix)} ago`, align: "right" },
        ]);
    });
}

/** One workspace after an operation */
export function printWorkspace(cli: Cli, workspace: WorkspaceInfo, opts: { quiet?: boolean | undefined }): void {
  if (cli.json) {
    printJson(workspace);
    return;
  }
  printWarnings([workspace]);
  const sandbox = workspace.live_sandbox_id;
  if (opts.quiet) printLine(sandbox ?? "-");
  else printLine(`Workspace ${workspace.name} is ${workspace.status}${sandbox ? ` in ${sandbox}` : ""}.`);
}
