// forkd run: image, snapshot, fork, exec and removal in one line

import { Command } from "commander";
import { connectOrStart } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { acceptNetwork, networkOf, type NetworkFlags } from "../network-options.ts";
import { addPair, addWords, positiveInteger, positiveNumber } from "../options.ts";
import { printJson } from "../output.ts";
import { acceptPlumbing, notePlumbing } from "../plumbing.ts";
import { passThrough, runProgram } from "../program-run.ts";
import { workingOnTerminal } from "../progress.ts";
import { ensureImage } from "../stored-image.ts";
import { stopIfIdle, withSandbox, withSnapshot } from "../temporary.ts";

import type { Cli } from "../cli.ts";

type Options = NetworkFlags & {
  image: string;
  packages?: string[];
  extra?: string[];
  memoryMib?: number;
  diskMib?: number;
  timeoutSecs: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  interactive?: boolean;
};

const PLUMBING = ["--cache <folder>", "--kernel <file>", "--tap <device>"];
/** A sandbox whose command was killed by force ends by itself so long after the program's own limit */
const TTL_MARGIN_SECS = 60;

export function runCommand(cli: Cli): Command {
  const command = new Command("run")
    .description("run one command in a new VM and leave nothing behind but the image, which is kept for the next time")
    .argument("[command...]", "after --: the program and its arguments; no shell")
    .usage("[options] --image <image> -- <command...>")
    .requiredOption("--image <image>", "a stored image, 'python3', or a reference to pull, such as debian:13-slim")
    .option("--packages <list>", "build the image from these Debian packages", addWords)
    .option("--extra <list>", "the same", addWords)
    .option("--memory-mib <mib>", "guest RAM", positiveInteger)
    .option("--disk-mib <mib>", "room for what the guest writes, on the host's disk (default: in its RAM)", positiveInteger)
    .option("--timeout-secs <secs>", "end it after so many seconds; exit code 124 then", positiveNumber, 600)
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .option("-i, --interactive", "pass standard input on")
    .option("--json", "print the whole result as JSON");
  return acceptPlumbing(acceptNetwork(command), PLUMBING).action(async (args: string[], opts: Options) => {
    if (args.length === 0) throw usageError("missing the program to run: forkd run --image python3 -- python3 --version");
    notePlumbing(command, PLUMBING);
    const network = networkOf(opts);
    const { controller: forkd, started } = await connectOrStart(cli);
    try {
      const packages = [...(opts.packages ?? []), ...(opts.extra ?? [])];
      const image = await ensureImage(cli, forkd, opts.image, { packages });
      const create = { image, memoryMib: opts.memoryMib, diskMib: opts.diskMib, warmUp: { kernels: [] } };
      const result = await withSnapshot(cli, forkd, create, async (tag) =>
        withSandbox(cli, forkd, tag, async (id) => runProgram(cli, forkd, id, args, opts), {
          network,
          ttlSecs: Math.ceil(opts.timeoutSecs) + TTL_MARGIN_SECS,
        }),
      );
      if (cli.json) printJson(result);
      cli.exitCode = cli.json ? result.exit_code : await passThrough(result, opts.timeoutSecs);
    } finally {
      if (started) await workingOnTerminal("Stopping the daemon", async () => stopIfIdle(forkd));
    }
  });
}
