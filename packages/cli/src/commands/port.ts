// forkd port

import { Command, InvalidArgumentError } from "commander";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { portNumber } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";
import type { Mapping } from "../guest/port-forward.ts";

export function portCommand(cli: Cli): Command {
  return new Command("port")
    .description("forward local ports to ports of a sandbox, until Ctrl-C")
    .argument("<id>", "id or name")
    .argument("[mappings...]", "LOCAL:GUEST, or GUEST for the same port here; 0 as LOCAL is any free port", addMapping)
    .usage("[options] <id> <[local:]guest...>")
    .option("--address <ip>", "local address to listen on; other machines can reach any address but loopback", "127.0.0.1")
    .option("--json", "print the local addresses as JSON")
    .action(async (id: string, mappings: Mapping[], opts: { address: string }) => {
      if (mappings.length === 0) throw usageError("missing the port: forkd port ID 8080:80");
      const [{ forwardPorts }, forkd] = await Promise.all([import("../guest/port-forward.ts"), connect(cli)]);
      const sandbox = await forkd.getSandbox(id, { signal: cli.signal });
      await forwardPorts(forkd, sandbox.id, mappings, {
        address: opts.address,
        signal: cli.signal,
        onReady: (listening) => {
          if (cli.json) printJson(listening);
          else for (const { address, port, guest_port: guest } of listening) printLine(`${at(address, port)} → ${sandbox.id}:${guest}`);
        },
      });
    });
}

function addMapping(text: string, all: Mapping[] = []): Mapping[] {
  const [, local, guest = ""] = /^(?:(\d+):)?(\d+)$/.exec(text) ?? [];
  if (local !== undefined && Number(local) > 65_535) throw new InvalidArgumentError("A port is a number from 0 to 65535.");
  const guestPort = portNumber(guest);
  return [...all, { localPort: local === undefined ? guestPort : Number(local), guestPort }];
}

function at(address: string, port: number): string {
  return `${address.includes(":") ? `[${address}]` : address}:${port}`;
}
