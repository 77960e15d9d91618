// forkd ping

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatMs } from "../terminal/format.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { acceptGuestAddresses, refuseGuestAddresses } from "../legacy-options.ts";

import type { Cli } from "../cli.ts";

export function pingCommand(cli: Cli): Command {
  const command = new Command("ping")
    .description("one round trip to the agent of a sandbox")
    .argument("[id]", "id or name")
    .option("--json", "print JSON");
  return acceptGuestAddresses(command).action(async (given: string | undefined) => {
    const id = refuseGuestAddresses(command, given);
    const forkd = await connect(cli);
    const pong = await forkd.pingSandbox(id, { signal: cli.signal });
    if (cli.json) printJson(pong);
    else printLine(`${id} answered in ${formatMs(pong.ms)}${pong.kernels.length > 0 ? `; warm: ${pong.kernels.join(", ")}` : ""}`);
  });
}
