// forkd from-image: pull and snapshot in one

import { Command } from "commander";
import { ABORTABLE, connect } from "../daemon.ts";
import { addWords, positiveInteger } from "../options.ts";
import { acceptPlumbing, notePlumbing } from "../plumbing.ts";
import { working } from "../progress.ts";
import { printSnapshot } from "../snapshot-table.ts";
import { ensureImage } from "../stored-image.ts";

import type { Cli } from "../cli.ts";

type Options = { tag: string; extra?: string[]; memoryMib?: number; memSizeMib?: number; diskMib?: number; quiet?: boolean };

const PLUMBING = ["--size-mib <mib>", "--cache <folder>", "--kernel <file>", "--tap <device>", "--boot-wait-secs <secs>"];

export function fromImageCommand(cli: Cli): Command {
  const command = new Command("from-image")
    .description("pull an image if it is not stored, boot it, warm it and freeze it")
    .argument("<image>", "a stored image, or a reference to pull")
    .requiredOption("--tag <tag>", "tag of the snapshot")
    .option("--extra <packages>", "build the image from these Debian packages instead", addWords)
    .option("--memory-mib <mib>", "guest RAM", positiveInteger)
    .option("--mem-size-mib <mib>", "the same", positiveInteger)
    .option("--disk-mib <mib>", "room for what the guest writes, on the host's disk (default: in its RAM)", positiveInteger)
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON");
  return acceptPlumbing(command, PLUMBING).action(async (reference: string, opts: Options) => {
    notePlumbing(command, PLUMBING);
    const forkd = await connect(cli);
    const image = await ensureImage(cli, forkd, reference, { packages: opts.extra ?? [] });
    const request = { image, memoryMib: opts.memoryMib ?? opts.memSizeMib, diskMib: opts.diskMib, signal: cli.signal };
    const snapshot = await working(`Making the snapshot ${opts.tag}`, async (onProgress) =>
      forkd.createSnapshot(opts.tag, { ...request, ...ABORTABLE, onProgress }),
    );
    printSnapshot(cli, snapshot, opts);
  });
}
