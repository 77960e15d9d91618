// forkd extend

import { Command, Option } from "commander";
import { connect } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { formatTime } from "../format.ts";
import { durationOrNever, orNull } from "../options.ts";
import { printJson, printLine } from "../output.ts";

import type { Cli } from "../cli.ts";

type Options = { ttl?: number | "never"; idleTimeout?: number | "never"; onTimeout?: "end" | "suspend"; autoResume?: boolean };

export function extendCommand(cli: Cli): Command {
  return new Command("extend")
    .description("let a sandbox live longer, or shorter")
    .argument("<id>", "id or name")
    .option("--ttl <time>", "it ends so long after now: 90, 90s, 10m, 2h, 1d, or never", durationOrNever)
    .option("--idle-timeout <time>", "it ends when nobody used it for this time, or never", durationOrNever)
    .addOption(new Option("--on-timeout <what>", "whether it ends or sleeps when its time is over").choices(["end", "suspend"]))
    .option("--auto-resume", "when it is suspended and somebody uses it, it wakes up")
    .option("--no-auto-resume", "only 'forkd resume' wakes it up")
    .option("--json", "print JSON")
    .action(async (id: string, opts: Options) => {
      if ([opts.ttl, opts.idleTimeout, opts.onTimeout, opts.autoResume].every((given) => given === undefined))
        throw usageError("Give --ttl, --idle-timeout, --on-timeout or --auto-resume.");
      const forkd = await connect(cli);
      const sandbox = await forkd.updateSandbox(id, {
        ttlSecs: orNull(opts.ttl),
        idleTimeoutSecs: orNull(opts.idleTimeout),
        onTimeout: opts.onTimeout,
        autoResume: opts.autoResume,
        signal: cli.signal,
      });
      if (cli.json) {
        printJson(sandbox);
        return;
      }
      const expires = sandbox.expires_at_unix === null ? "never" : `at ${formatTime(sandbox.expires_at_unix)} UTC`;
      const idle = sandbox.idle_timeout_secs === null ? "" : `, or when nobody used it for ${sandbox.idle_timeout_secs} s`;
      printLine(`${sandbox.id} ${sandbox.on_timeout}s ${expires}${idle}.`);
    });
}
