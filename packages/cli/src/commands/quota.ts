// forkd quota

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { shownLimit } from "../options/quota.ts";
import { printJson, printTable } from "../terminal/output.ts";

import type { Quota } from "forkd";
import type { Cli } from "../cli.ts";

export function quotaCommand(cli: Cli): Command {
  return new Command("quota")
    .description("limits of the project, and how much of them is used")
    .option("--json", "print JSON")
    .action(async () => {
      const forkd = await connect(cli);
      const { limits, used, ...rest } = await forkd.quota({ signal: cli.signal });
      if (cli.json) {
        printJson({ ...rest, limits, used });
        return;
      }
      printTable(Object.keys(limits) as (keyof Quota)[], [
        { title: "QUOTA", value: (name) => name },
        { title: "USED", value: (name) => String(used[name]), align: "right" },
        { title: "LIMIT", value: (name) => shownLimit(limits[name]), align: "right" },
      ]);
    });
}
