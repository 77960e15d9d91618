// forkd mcp install

import { Command, Option } from "commander";
import { ask } from "../../terminal/ask.ts";
import { usageError } from "../../errors.ts";
import { configFile, MCP_CLIENTS, type McpClient } from "../../mcp/clients.ts";
import { ConfigEdit } from "../../mcp/config.ts";
import { printJson, printLine, printNote, printPlain } from "../../terminal/output.ts";
import { forkdProgram } from "../../installation.ts";

import type { Cli } from "../../cli.ts";

type Options = { client: McpClient; file?: string; project?: boolean; yes?: boolean; print?: boolean };

/** Variables that select another daemon or store; desktop programs do not have the shell's environment */
const PASSED_ON = ["FORKD_URL", "FORKD_SOCKET", "FORKD_HOME", "FORKD_RUN", "FORKD_CONFIG"];

export function mcpInstallCommand(cli: Cli): Command {
  return new Command("install")
    .description("write the MCP server into the configuration of a client, after showing the change")
    .addOption(new Option("--client <client>", "whose configuration").choices(MCP_CLIENTS).makeOptionMandatory())
    .option("--project", "for the project in this folder only (claude-code, cursor)")
    .option("--file <path>", "the configuration file, if not the usual one")
    .option("--print", "only show the change")
    .option("-y, --yes", "do not ask")
    .option("--json", "print JSON")
    .action(async (opts: Options) => install(cli, opts));
}

async function install(cli: Cli, opts: Options): Promise<void> {
  if (opts.file !== undefined && opts.project) throw usageError("--file and --project exclude each other");
  const edit = await ConfigEdit.prepare(
    opts.file ?? configFile(opts.client, { project: opts.project === true }),
    "forkd",
    entryOf(cli, opts.client),
  );
  const { file, isChanged } = edit;
  if (!cli.json) show(edit, cli);
  if (!isChanged || opts.print) {
    if (cli.json) printJson({ file, changed: false, diff: edit.diff, backup: null });
    return;
  }
  if (!opts.yes && !(await ask(`Change ${file}?`, { signal: cli.signal }))) {
    printNote("Nothing was changed.");
    cli.exitCode = 1;
    return;
  }
  const backup = await edit.write();
  if (cli.json) printJson({ file, changed: true, diff: edit.diff, backup });
  else
    printPlain(
      backup === null
        ? `Written. Restart ${opts.client} to use it.`
        : `Written; what was there is in ${backup}. Restart ${opts.client} to use it.`,
    );
}

function show(edit: ConfigEdit, cli: Cli): void {
  if (!edit.isChanged) {
    printPlain(`${edit.file} has it already.`);
    return;
  }
  printPlain(edit.isNew ? `${edit.file} (new)` : edit.file);
  for (const line of edit.diff) printLine(line);
  if (cli.daemonUrl !== undefined)
    printNote("Note: the token is not written. Add FORKD_TOKEN to its environment there, or to that of the client.");
}

/** Absolute, because clients have another PATH */
function entryOf(cli: Cli, client: McpClient): object {
  const variables = PASSED_ON.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []));
  const env = { ...Object.fromEntries(variables), ...(cli.daemonUrl === undefined ? {} : { FORKD_URL: cli.daemonUrl }) } as object;
  const command = { command: forkdProgram(), args: ["mcp"], ...(Object.keys(env).length === 0 ? {} : { env }) };
  return client === "claude-code" ? { type: "stdio", ...command } : command;
}
