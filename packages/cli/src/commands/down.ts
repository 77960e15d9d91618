// forkd down

import { Command } from "commander";
import { stopDaemon } from "../daemon/stop.ts";
import { connectIfRunning } from "../daemon/connect.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";

export function downCommand(cli: Cli): Command {
  return new Command("down")
    .description("stop the daemon; sandboxes continue to run, and the next daemon takes them over")
    .option("--kill-sandboxes", "end the sandboxes too")
    .option("--json", "print JSON")
    .action(async (opts: { killSandboxes?: boolean }) => {
      const forkd = await connectIfRunning(cli);
      if (!forkd) {
        if (cli.json) printJson({ stopped: false });
        else printLine("The daemon is not running.");
        return;
      }
      const killSandboxes = opts.killSandboxes === true;
      const status = await forkd.status({ signal: cli.signal });
      const isLocal = cli.daemonUrl === undefined;
      await working("Stopping the daemon", async () => stopDaemon(forkd, status, { killSandboxes, isLocal, signal: cli.signal }));
      const left = killSandboxes ? 0 : status.sandboxes;
      if (cli.json) printJson({ stopped: true, pid: status.pid, sandboxes: left });
      else printLine(`The daemon is stopped.${left > 0 ? ` ${left} sandboxes continue to run; the next daemon takes them over.` : ""}`);
    });
}
