// forkd ping

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { formatMs } from "../format.ts";
import { printJson, printLine } from "../output.ts";
import { acceptTargets, refuseTargets } from "../targets.ts";

import type { Cli } from "../cli.ts";

export function pingCommand(cli: Cli): Command {
  const command = new Command("ping")
    .description("one round trip to the agent of a sandbox")
    .argument("[id]", "id or name")
    .option("--json", "print JSON");
  return acceptTargets(command).action(async (given: string | undefined) => {
    const id = refuseTargets(command, given);
    const forkd = await connect(cli);
    const pong = await forkd.pingSandbox(id, { signal: cli.signal });
    if (cli.json) printJson(pong);
    else printLine(`${id} answered in ${formatMs(pong.ms)}${pong.kernels.length > 0 ? `; warm: ${pong.kernels.join(", ")}` : ""}`);
  });
}
