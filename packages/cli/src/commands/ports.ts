// forkd ports

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { printJson, printLine, printTable } from "../terminal/output.ts";

import type { PortInfo } from "forkd";
import type { Cli } from "../cli.ts";

export function portsCommand(cli: Cli): Command {
  return new Command("ports")
    .description("list the listening TCP ports of a sandbox")
    .argument("<id>", "id or name")
    .option("--json", "print JSON")
    .action(async (id: string) => {
      const forkd = await connect(cli);
      const ports = await forkd.listPorts(id, { signal: cli.signal });
      if (cli.json) printJson(ports);
      else if (ports.length === 0) printLine("Nothing listens there.");
      else
        printTable(ports, [
          { title: "PORT", value: ({ port }) => String(port), align: "right" },
          { title: "ADDRESS", value: ({ address }) => address },
          { title: "PROCESS", value: ownerOf },
        ]);
    });
}

function ownerOf({ process }: PortInfo): string {
  return process === null ? "-" : `${process.name} (${process.pid})`;
}
