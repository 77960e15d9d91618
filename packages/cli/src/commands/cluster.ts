// forkd cluster: the group of verbs about the nodes of a cluster.

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatTime } from "../terminal/format.ts";
import { printJson, printLine, printTable } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";

import type { ClusterNode } from "forkd";
import type { Cli } from "../cli.ts";

export function clusterCommand(cli: Cli): Command {
  return new Command("cluster")
    .description("the nodes of a cluster: status, cordon, uncordon, drain")
    .addCommand(statusCommand(cli))
    .addCommand(cordonCommand(cli, { name: "cordon", isCordoned: true, description: "let a node take no forks; its sandboxes continue" }))
    .addCommand(cordonCommand(cli, { name: "uncordon", isCordoned: false, description: "let a node take forks again" }))
    .addCommand(drainCommand(cli));
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

function cordonCommand(cli: Cli, { name, isCordoned, description }: { name: string; isCordoned: boolean; description: string }): Command {
  return new Command(name)
    .description(description)
    .argument("<node>", "its code, as 'forkd cluster status' shows it")
    .option("--json", "print JSON")
    .action(async (node: string) => {
      const forkd = await connect(cli);
      const changed = await forkd.updateNode(node, { cordoned: isCordoned, signal: cli.signal });
      if (cli.json) printJson(changed);
      else printLine(`${node} is ${stateOf(changed)}`);
    });
}

function drainCommand(cli: Cli): Command {
  return new Command("drain")
    .description("cordon a node and move its sandboxes to other nodes, where they run on with the same ids")
    .argument("<node>", "its code, as 'forkd cluster status' shows it")
    .option("--json", "print JSON")
    .action(async (node: string) => {
      const forkd = await connect(cli);
      const drained = await working(`Draining ${node}`, async () => forkd.drainNode(node, { timeoutMs: 0, signal: cli.signal }));
      if (drained.left.length > 0) cli.exitCode = 1;
      if (cli.json) printJson(drained);
      else
        printTable(
          [
            ...drained.moved.map(({ id, name, to, state, problem }) => ({
              id,
              name,
              to,
              state: problem === null ? state : `${state}: ${problem}`,
            })),
            ...drained.left.map(({ id, name, code, problem }) => ({ id, name, to: "-", state: `${code}: ${problem}` })),
          ],
          [
            { title: "ID", value: ({ id }) => id },
            { title: "NAME", value: ({ name }) => name ?? "-" },
            { title: "TO", value: ({ to }) => to },
            { title: "STATE", value: ({ state }) => state },
          ],
        );
    });
}

function stateOf({ state, cordoned, problem, last_seen_unix: seen }: ClusterNode): string {
  return state === "up" ? (cordoned ? "up, cordoned" : "up") : `down since ${formatTime(seen)}: ${problem ?? "it never answered"}`;
}
