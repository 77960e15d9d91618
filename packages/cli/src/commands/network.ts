// forkd network

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { acceptNetwork, networkOf, type NetworkFlags } from "../options/network.ts";
import { formatBytes, printFacts, printJson, printLine, printTable } from "../terminal/output.ts";

import type { NetworkConnection, NetworkInfo } from "forkd";
import type { Cli } from "../cli.ts";

type Options = Omit<NetworkFlags, "network"> & { set?: NetworkFlags["network"] };

export function networkCommand(cli: Cli): Command {
  const command = new Command("network")
    .description("print the network policy and the last connections of a sandbox, or change the policy")
    .argument("<id>", "id or name");
  return acceptNetwork(command, "--set <mode>")
    .option("--json", "print JSON")
    .action(async (id: string, { set: network, ...rest }: Options) => {
      const wanted = networkOf({ ...rest, ...(network ? { network } : {}) });
      const forkd = await connect(cli);
      const info = wanted ? await forkd.setNetwork(id, wanted, { signal: cli.signal }) : await forkd.getNetwork(id, { signal: cli.signal });
      if (cli.json) printJson(info);
      else printNetwork(info);
    });
}

function printNetwork(info: NetworkInfo): void {
  const limit = info.egress_limit_bytes;
  printFacts([
    ["mode", info.mode],
    ["allow", info.allow.join(" ") || "-"],
    ...(info.deny ? [["deny", info.deny.join(" ")] as [string, string]] : []),
    ["egress limit", limit === null ? "none" : `${formatBytes(info.egress_used_bytes)} of ${formatBytes(limit)} used`],
    ["connections", `${info.connections_open} open, ${info.connections_total} in all, ${info.connections_refused} refused`],
    ["traffic", `${formatBytes(info.bytes_up)} up, ${formatBytes(info.bytes_down)} down`],
  ]);
  if (info.recent.length === 0) return;
  printLine();
  printTable(info.recent, [
    { title: "TIME", value: (one) => one.time.slice(11, 19) },
    { title: "TO", value: target, wraps: true },
    { title: "DECISION", value: (one) => one.decision, style: (text) => (text === "refused" ? "red" : "green") },
    { title: "UP", value: (one) => formatBytes(one.bytes_up), align: "right" },
    { title: "DOWN", value: (one) => formatBytes(one.bytes_down), align: "right" },
    { title: "STATE", value: (one) => (one.open ? "open" : (one.error ?? (one.decision === "refused" ? "-" : "ended"))) },
    { title: "WHY", value: (one) => one.reason, wraps: true },
  ]);
}

function target({ name, ip, port }: NetworkConnection): string {
  const address = ip === null ? "" : `${ip.includes(":") ? `[${ip}]` : ip}:${port}`;
  if (name === null) return address;
  return address === "" ? name : `${name} (${address})`;
}
