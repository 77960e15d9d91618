// forkd cluster: the group of verbs about the nodes of a cluster.

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatTime } from "../terminal/format.ts";
import { printJson, printTable } from "../terminal/output.ts";

import type { ClusterNode } from "forkd";
import type { Cli } from "../cli.ts";

export function clusterCommand(cli: Cli): Command {
  return new Command("cluster").description("the nodes of a cluster: status").addCommand(statusCommand(cli));
}

function statusCommand(cli: Cli): Command {
  return new Command("status")
    .description("list the nodes, their load, and the snapshots they hold")
    .option("--json", "print JSON")
    .action(async () => {
      const forkd = await connect(cli);
      const cluster = await forkd.cluster({ signal: cli.signal });
      if (cli.json) printJson(cluster);
      else
        printTable(cluster.nodes, [
          { title: "NODE", value: ({ code }) => code ?? "-" },
          { title: "ADDRESS", value: ({ url }) => url ?? "this daemon" },
          { title: "STATE", value: stateOf },
          { title: "SANDBOXES", value: (node) => `${node.sandboxes}/${node.max_sandboxes}`, align: "right" },
          { title: "FREE MIB", value: ({ memory }) => String(memory.available_mib), align: "right" },
          { title: "LOAD", value: ({ load }) => load.toFixed(2), align: "right" },
          { title: "SNAPSHOTS", value: ({ snapshots }) => snapshots.map(({ tag }) => tag).join(", ") || "-" },
        ]);
    });
}

function stateOf({ state, problem, last_seen_unix: seen }: ClusterNode): string {
  return state === "up" ? "up" : `down since ${formatTime(seen)}: ${problem ?? "it never answered"}`;
}
