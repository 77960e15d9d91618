// forkd from-image: pull and snapshot in one

import { Command } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { addWords, positiveInteger } from "../options/values.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { working } from "../terminal/progress.ts";
import { printSnapshot } from "../terminal/snapshot-table.ts";
import { ensureImage } from "../guest/stored-image.ts";

import type { Cli } from "../cli.ts";

type Options = {
  tag: string;
  extra?: string[];
  memoryMib?: number;
  memSizeMib?: number;
  diskMib?: number;
  cpu?: string;
  hugepages?: boolean;
  quiet?: boolean;
};

const PLUMBING = ["--size-mib <mib>", "--cache <folder>", "--kernel <file>", "--tap <device>", "--boot-wait-secs <secs>"];

export function fromImageCommand(cli: Cli): Command {
  const command = new Command("from-image")
    .description("pull an image if it is not stored, boot it, warm it and freeze it")
    .argument("<image>", "a stored image, or a reference to pull")
    .requiredOption("--tag <tag>", "tag of the snapshot")
    .option("--extra <packages>", "build the image from these Debian packages instead", addWords)
    .option("--memory-mib <mib>", "guest RAM", positiveInteger)
    .option("--mem-size-mib <mib>", "the same", positiveInteger)
    .option(
      "--cpu <model>",
      "baseline (runs on every host), host, or a CPU model of the engine (default: the best that this host can give)",
    )
    .option("--hugepages", "forks map a copy of its memory in huge pages of the host")
    .option("--disk-mib <mib>", "size of the guest's writable disk (default: writes take its RAM)", positiveInteger)
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON");
  return acceptLegacyOptions(command, PLUMBING).action(async (reference: string, opts: Options) => {
    noteLegacyOptions(command, PLUMBING);
    const forkd = await connect(cli);
    const image = await ensureImage(cli, forkd, reference, { packages: opts.extra ?? [] });
    const { diskMib, cpu, hugepages } = opts;
    const request = { image, memoryMib: opts.memoryMib ?? opts.memSizeMib, diskMib, cpu, hugepages, signal: cli.signal };
    const snapshot = await working(`Making the snapshot ${opts.tag}`, async (onProgress) =>
      forkd.createSnapshot(opts.tag, { ...request, ...ABORTABLE, onProgress }),
    );
    printSnapshot(cli, snapshot, opts);
  });
}
