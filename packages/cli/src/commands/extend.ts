// forkd extend

import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { formatTime } from "../terminal/format.ts";
import { durationOrNever, orNull } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";

type Options = {
  ttl?: number | "never";
  idleTimeout?: number | "never";
  suspendedTtl?: number | "never";
  onTimeout?: "end" | "suspend";
  autoResume?: boolean;
  rotateAccess?: true;
};

export function extendCommand(cli: Cli): Command {
  return new Command("extend")
    .description("change the time to live of a sandbox")
    .argument("<id>", "id or name")
    .option("--ttl <time>", "time from now until it ends: 90, 90s, 10m, 2h, 1d, or never", durationOrNever)
    .option("--idle-timeout <time>", "time without use after which it ends, or never", durationOrNever)
    .option("--suspended-ttl <time>", "time after which it is removed while it is suspended, or never", durationOrNever)
    .addOption(new Option("--on-timeout <what>", "what happens when its time is over").choices(["end", "suspend"]))
    .option("--auto-resume", "resume it at its next use after a suspend")
    .option("--no-auto-resume", "only 'forkd resume' resumes it")
    .option("--rotate-access", "give it new access tokens of E2B's protocol, and revoke the previous ones")
    .option("--json", "print JSON")
    .action(async (id: string, opts: Options) => {
      if (
        [opts.ttl, opts.idleTimeout, opts.suspendedTtl, opts.onTimeout, opts.autoResume, opts.rotateAccess].every(
          (given) => given === undefined,
        )
      )
        throw usageError("Give --ttl, --idle-timeout, --suspended-ttl, --on-timeout, --auto-resume or --rotate-access.");
      const forkd = await connect(cli);
      const sandbox = await forkd.updateSandbox(id, {
        ttlSecs: orNull(opts.ttl),
        idleTimeoutSecs: orNull(opts.idleTimeout),
        suspendedTtlSecs: orNull(opts.suspendedTtl),
        onTimeout: opts.onTimeout,
        autoResume: opts.autoResume,
        rotateAccess: opts.rotateAccess,
        signal: cli.signal,
      });
      if (cli.json) {
        printJson(sandbox);
        return;
      }
      const expires = sandbox.expires_at_unix === null ? "never" : `at ${formatTime(sandbox.expires_at_unix)} UTC`;
      const idle = sandbox.idle_timeout_secs === null ? "" : `, or after it was idle for ${sandbox.idle_timeout_secs} s`;
      printLine(`${sandbox.id} ${sandbox.on_timeout}s ${expires}${idle}.`);
    });
}
