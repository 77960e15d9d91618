// forkd run: image, snapshot, fork, exec and removal in one command

import { Command } from "commander";
import { connectOrStart } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { acceptNetwork, networkOf, type NetworkFlags } from "../options/network.ts";
import { addPair, addShare, addWords, positiveInteger, positiveNumber } from "../options/values.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { refuseWithoutTerminal, runProgram } from "../guest/program-run.ts";
import { workingOnTerminal } from "../terminal/progress.ts";
import { ensureImage } from "../guest/stored-image.ts";
import { stopIfIdle, withSandbox, withSnapshot } from "../guest/temporary.ts";

import type { Share } from "forkd";
import type { Cli } from "../cli.ts";
import type { ProgramOptions } from "../guest/program-run.ts";

type Options = ProgramOptions &
  NetworkFlags & {
    image: string;
    packages?: string[];
    extra?: string[];
    memoryMib?: number;
    diskMib?: number;
    share?: Share[];
  };

const PLUMBING = ["--cache <folder>", "--kernel <file>", "--tap <device>"];
const DEFAULT_SECS = 600;

export function runCommand(cli: Cli): Command {
  const command = new Command("run")
    .description("run one command in a new VM, which is then removed; the image is kept for the next time")
    .argument("[command...]", "after --: the program and its arguments; no shell")
    .usage("[options] --image <image> -- <command...>")
    .requiredOption("--image <image>", "a stored image, 'python3', or a reference to pull, such as debian:13-slim")
    .option("--packages <list>", "build the image from these Debian packages", addWords)
    .option("--extra <list>", "the same", addWords)
    .option("--memory-mib <mib>", "guest RAM", positiveInteger)
    .option("--disk-mib <mib>", "size of the guest's writable disk (default: writes take its RAM)", positiveInteger)
    .option("--timeout-secs <secs>", "kill it after so many seconds, with exit code 124 (default: 600, with -t never)", positiveNumber)
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--share <folder[:place]>", "a folder of the daemon's machine that it sees, live and read-only; may be repeated", addShare)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .option("-i, --interactive", "forward standard input")
    .option("-t, --tty", "give it a terminal; with -i, this one")
    .option("--json", "print the whole result as JSON");
  return acceptLegacyOptions(acceptNetwork(command), PLUMBING).action(async (args: string[], opts: Options) => {
    if (args.length === 0) throw usageError("missing the program to run: forkd run --image python3 -- python3 --version");
    noteLegacyOptions(command, PLUMBING);
    const network = networkOf(opts);
    refuseWithoutTerminal(cli, opts);
    const timeoutSecs = opts.timeoutSecs ?? (opts.tty ? undefined : DEFAULT_SECS);
    const { controller: forkd, started } = await connectOrStart(cli);
    try {
      const packages = [...(opts.packages ?? []), ...(opts.extra ?? [])];
      const image = await ensureImage(cli, forkd, opts.image, { packages });
      const create = { image, memoryMib: opts.memoryMib, diskMib: opts.diskMib, warmUp: { kernels: [] } };
      cli.exitCode = await withSnapshot(cli, forkd, create, async (tag) =>
        withSandbox(
          cli,
          forkd,
          tag,
          async (id) => runProgram(cli, forkd, id, args, { ...opts, ...(timeoutSecs === undefined ? {} : { timeoutSecs }) }),
          { network, shares: opts.share },
        ),
      );
    } finally {
      if (started) await workingOnTerminal("Stopping the daemon", async () => stopIfIdle(forkd));
    }
  });
}
