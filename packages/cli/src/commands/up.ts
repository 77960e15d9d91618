// forkd up

import { IGNORED_OPTIONS, optionOf, SETTINGS } from "@forkd/daemon/settings";
import { Command, Option } from "commander";
import { becomeDaemon } from "../daemon/process.ts";
import { connectIfRunning, NO_ADDRESS, startOwn } from "../daemon/connect.ts";
import { printFacts, printJson, printLine, printNote } from "../terminal/output.ts";
import { paths } from "../daemon/paths.ts";

import type { SettingText } from "@forkd/daemon/settings";
import type { Status } from "forkd";
import type { Cli } from "../cli.ts";

export function upCommand(cli: Cli): Command {
  const command = new Command("up").description(
    "start the daemon in the background; every option is also a FORKD_* variable and a line of the file",
  );
  for (const option of settingOptions()) command.addOption(option);
  return command
    .option("--foreground", "stay in the foreground, with its log on standard error")
    .option("--json", "print JSON")
    .action(async (opts: { foreground?: boolean }) => {
      const args = daemonOptions(command);
      if (opts.foreground) becomeDaemon(args);
      // FORKD_URL names another daemon
      const running = await connectIfRunning({ ...cli, daemonUrl: undefined });
      const { controller, started } = running ? { controller: running, started: false } : await startOwn(cli, args);
      const status = await controller.status({ signal: cli.signal });
      if (!started && args.length > 0) printNote("Note: it is running already, so the options have no effect; 'forkd down' first.");
      if (cli.json) printJson({ started, ...status });
      else printUp(status, started);
    });
}

/** Options for all settings of the daemon, which validates the values, and the hidden options of the older controller */
function settingOptions(): Option[] {
  return [
    ...Object.values<SettingText>(SETTINGS).map(
      ({ name, value, about, fallback }) =>
        new Option(`--${optionOf(name)}${value ? ` <${value}>` : ""}`, `${plainText(about)} (default: ${fallback ?? "none"})`),
    ),
    ...IGNORED_OPTIONS.map((name) => new Option(`--${name} <path>`).hideHelp()),
  ];
}

/** Removes links and marks of Markdown */
function plainText(about: string): string {
  return about.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, "$1").replaceAll("`", "");
}

/** The given options as arguments of the daemon */
export function daemonOptions(command: Command): string[] {
  return settingOptions().flatMap((option) => {
    const value: unknown = command.getOptionValue(option.attributeName());
    if (value === true) return [option.long ?? ""];
    return typeof value === "string" ? [`${option.long}=${value}`] : [];
  });
}

function printUp(status: Status, isNew: boolean): void {
  printLine(isNew ? `The daemon runs (pid ${status.pid}).` : `The daemon is running already (pid ${status.pid}).`);
  const scheme = status.tls ? "https" : "http";
  printFacts([
    ["socket", `${status.socket} (for your own user, no token needed)`],
    ["address", status.bind ? `${scheme}://${status.bind} (needs a token: forkd token create NAME)` : NO_ADDRESS],
    ["log", paths().log],
  ]);
}
