// forkd pause, forkd suspend and forkd resume

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { forEach } from "../each.ts";

import type { Cli } from "../cli.ts";

export function pauseCommand(cli: Cli): Command {
  return new Command("pause")
    .description("stop the CPUs of sandboxes; their memory stays")
    .argument("<ids...>", "ids or names")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (ids: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const pause = async (id: string): Promise<unknown> => forkd.pauseSandbox(id, { signal: cli.signal });
      await forEach(cli, ids, pause, { step: "Pausing", done: "Paused %s.", quiet: opts.quiet });
    });
}

export function suspendCommand(cli: Cli): Command {
  return new Command("suspend")
    .description("save memory and disk of sandboxes and give back what they use; they keep their ids and go on after 'forkd resume'")
    .argument("<ids...>", "ids or names")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (ids: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const suspend = async (id: string): Promise<unknown> => forkd.suspendSandbox(id, { signal: cli.signal });
      await forEach(cli, ids, suspend, { step: "Suspending", done: "Suspended %s.", quiet: opts.quiet });
    });
}

export function resumeCommand(cli: Cli): Command {
  return new Command("resume")
    .description("let paused or suspended sandboxes go on, with their clocks set")
    .argument("<ids...>", "ids or names")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (ids: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const resume = async (id: string): Promise<unknown> => forkd.resumeSandbox(id, { signal: cli.signal });
      await forEach(cli, ids, resume, { step: "Resuming", done: "Resumed %s.", quiet: opts.quiet });
    });
}
