// forkd image build

import { resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { connect } from "../../daemon/connect.ts";
import { makeImage } from "../../guest/stored-image.ts";
import { parseBytes, printStored } from "./stored.ts";

import type { PackagesSource } from "forkd";
import type { Cli } from "../../cli.ts";

type Copy = { from: string; to: string };
type Options = Omit<PackagesSource, "name" | "packages"> & { packages?: string[] };

export function imageBuildCommand(cli: Cli): Command {
  return new Command("build")
    .description("build an image from Debian packages")
    .argument("<name>", "name of the image")
    .option("--packages <list>", "packages, separated by commas", addPackages)
    .option("--copy <src:dst>", "copy a file or folder of this machine into it; may be repeated; not over the network", addCopy)
    .option("--run <command>", "run a shell command inside it, after the copies; may be repeated", addRun)
    .option("--suite <name>", "release of the distribution (default: the host's own)")
    .option("--mirror <address>", "package mirror (default: the host's apt sources)")
    .option("--max-bytes <bytes>", "limit of the unpacked size", parseBytes)
    .option("--force", "build even when an image of the same inputs exists")
    .option("--json", "print JSON")
    .action(async (name: string, opts: Options) => {
      const { packages = [], copy, run, suite, mirror, maxBytes, force } = opts;
      const forkd = await connect(cli);
      const image = await makeImage(cli, forkd, { name, packages, copy, run, suite, mirror, maxBytes, force }, `Building ${name}`);
      printStored(cli, name, image);
    });
}

function addPackages(list: string, all: string[] = []): string[] {
  return [
    ...all,
    ...list
      .split(",")
      .map((name) => name.trim())
      .filter(Boolean),
  ];
}

function addRun(command: string, all: string[] = []): string[] {
  return [...all, command];
}

/** Absolute, because the daemon has another working folder */
function addCopy(value: string, all: Copy[] = []): Copy[] {
  const at = value.lastIndexOf(":");
  if (at <= 0 || at === value.length - 1) throw new InvalidArgumentError("It must be SRC:DST.");
  return [...all, { from: resolve(value.slice(0, at)), to: value.slice(at + 1) }];
}
