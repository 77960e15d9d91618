// forkd config

import { Command } from "commander";
import { connectIfRunning } from "../daemon/connect.ts";
import { printJson, printNote, printTable } from "../terminal/output.ts";

import type { Config } from "forkd";
import type { Cli } from "../cli.ts";

export function configCommand(cli: Cli): Command {
  return new Command("config")
    .description("print the settings of the running daemon, or of the one that would start, and the source of each")
    .option("--json", "print JSON")
    .action(async () => {
      const forkd = await connectIfRunning(cli);
      const config = forkd ? await forkd.config({ signal: cli.signal }) : await resolved();
      if (cli.json) {
        printJson(config);
        return;
      }
      printTable(Object.entries(config), [
        { title: "NAME", value: ([name]) => name },
        { title: "VALUE", value: ([, { value }]) => (value === null ? "none" : String(value)), wraps: true },
        { title: "SOURCE", value: ([, { source }]) => source },
      ]);
      if (!forkd) printNote("The daemon is not running; these are the settings it would start with.");
    });
}

async function resolved(): Promise<Config> {
  const { resolveConfig } = await import("@forkd/daemon");
  const { resolveHome } = await import("@forkd/runtime");
  return { ...(await resolveConfig({ home: resolveHome() })).entries };
}
