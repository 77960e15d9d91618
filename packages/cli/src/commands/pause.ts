// forkd pause, forkd suspend and forkd resume; stop and start are suspend and resume

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { forEach } from "../each.ts";

import type { Cli } from "../cli.ts";

type Turn = { name: string; description: string; step: string; done: string; call: "pauseSandbox" | "suspendSandbox" | "resumeSandbox" };

export function pauseCommand(cli: Cli): Command {
  const description = "stop the CPUs of sandboxes; their memory stays";
  return turnCommand(cli, { name: "pause", description, step: "Pausing", done: "Paused %s.", call: "pauseSandbox" });
}

export function suspendCommand(cli: Cli): Command {
  const description = "save memory and disk of sandboxes and free their resources; they keep their ids and continue after 'forkd resume'";
  return turnCommand(cli, { name: "suspend", description, step: "Suspending", done: "Suspended %s.", call: "suspendSandbox" });
}

export function resumeCommand(cli: Cli): Command {
  const description = "resume paused or suspended sandboxes and set their clocks";
  return turnCommand(cli, { name: "resume", description, step: "Resuming", done: "Resumed %s.", call: "resumeSandbox" });
}

/** As in docker: it uses only disk space, and loses no state */
export function stopCommand(cli: Cli): Command {
  const description = "suspend sandboxes: all of them on disk, until 'forkd start'. 'forkd rm' ends them";
  const done = "Stopped %s. 'forkd start' resumes it, 'forkd rm' removes it.";
  return turnCommand(cli, { name: "stop", description, step: "Suspending", done, call: "suspendSandbox" });
}

export function startCommand(cli: Cli): Command {
  const description = "resume stopped sandboxes";
  return turnCommand(cli, { name: "start", description, step: "Resuming", done: "Started %s.", call: "resumeSandbox" });
}

function turnCommand(cli: Cli, { name, description, step, done, call }: Turn): Command {
  return new Command(name)
    .description(description)
    .argument("<ids...>", "ids or names")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (ids: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      await forEach(cli, ids, async (id) => forkd[call](id, { signal: cli.signal }), { step, done, quiet: opts.quiet });
    });
}
