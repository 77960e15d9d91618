// forkd pause, forkd suspend and forkd resume

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { forEach } from "../each.ts";

import type { Cli } from "../cli.ts";

type Turn = { name: string; description: string; step: string; done: string; call: "pauseSandbox" | "suspendSandbox" | "resumeSandbox" };

export function pauseCommand(cli: Cli): Command {
  const description = "stop the CPUs of sandboxes; their memory stays";
  return turnCommand(cli, { name: "pause", description, step: "Pausing", done: "Paused %s.", call: "pauseSandbox" });
}

export function suspendCommand(cli: Cli): Command {
  const description = "save memory and disk of sandboxes and give back what they use; they keep their ids and go on after 'forkd resume'";
  return turnCommand(cli, { name: "suspend", description, step: "Suspending", done: "Suspended %s.", call: "suspendSandbox" });
}

export function resumeCommand(cli: Cli): Command {
  const description = "let paused or suspended sandboxes go on, with their clocks set";
  return turnCommand(cli, { name: "resume", description, step: "Resuming", done: "Resumed %s.", call: "resumeSandbox" });
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
