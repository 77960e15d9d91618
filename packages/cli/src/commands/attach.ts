// forkd attach

import { Command } from "commander";
import { SandboxProcesses } from "forkd";
import { connect } from "../daemon/connect.ts";
import { follow } from "../terminal/live.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";

import type { Cli } from "../cli.ts";

type Options = { from: string; interactive?: boolean };

export function attachCommand(cli: Cli): Command {
  return new Command("attach")
    .description("attach to a running process; a process with a terminal gets this one. Detaching does not end it")
    .argument("<id>", "id or name of the sandbox")
    .argument("<process>", "id or tag of the process")
    .option("--from <place>", "start position: start (all retained output), now, or OUT-ERR in bytes", "start")
    .option("-i, --interactive", "forward standard input; always with a terminal")
    .action(async (id: string, process_: string, opts: Options) => {
      const processes = new SandboxProcesses(await connect(cli), id);
      const live = await processes.attach(process_, { from: opts.from, signal: cli.signal });
      const isTerminal = live.terminal && process.stdin.isTTY;
      if (isTerminal) await live.resize(terminalSize()).catch(() => undefined); // the process may have ended
      cli.exitCode = await follow(live, {
        feeds: isTerminal || opts.interactive === true,
        kill: async () => processes.kill(live.id),
        again: ({ id: number, cursor }) => `forkd attach ${id} ${number} --from ${cursor}`,
        leavesOnInterrupt: true,
      });
    });
}
