// forkd snapshot-diff: a snapshot of a fork in which a command was run

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { failure } from "../errors.ts";
import { positiveNumber } from "../options/values.ts";
import { working } from "../terminal/progress.ts";
import { printBranch } from "../terminal/snapshot-table.ts";
import { withSandbox } from "../guest/temporary.ts";

import type { ExecResult } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { from: string; tag: string; exec: string; execTimeoutSecs: number; quiet?: boolean };

export function snapshotDiffCommand(cli: Cli): Command {
  return new Command("snapshot-diff")
    .description("fork a snapshot, run a shell command in the fork, branch it under a new tag and end it")
    .requiredOption("--from <tag>", "the snapshot to start from")
    .requiredOption("--tag <tag>", "tag of the new snapshot")
    .requiredOption("--exec <command>", "shell command")
    .option("--exec-timeout-secs <secs>", "limit of the command", positiveNumber, 600)
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const forkd = await connect(cli);
      const snapshot = await working(`Running the command in a fork of ${opts.from}`, async () =>
        withSandbox(cli, forkd, opts.from, async (id) => {
          const { signal } = cli;
          const result = await forkd.execCommand(id, ["sh", "-c", opts.exec], { timeoutSecs: opts.execTimeoutSecs, signal });
          if (result.exit_code !== 0) throw commandFailure(result);
          return forkd.branchSandbox(id, { tag: opts.tag, signal });
        }),
      );
      printBranch(cli, `a fork of ${opts.from}`, snapshot, opts);
    });
}

function commandFailure(result: ExecResult): Error {
  const wrote = `${result.stdout}${result.stderr}`.trim();
  const why = result.timed_out ? "it took too long" : `it ended with ${result.exit_code}`;
  return failure(
    "EXEC_FAILED",
    `The command failed: ${why}${wrote ? ` and wrote\n${wrote}` : ""}`,
    "No snapshot was made. Fix the command.",
  );
}
