// forkd image build

import { Command, InvalidArgumentError } from "commander";
import { showProgress } from "../../progress.ts";
import { parseBytes, printStored } from "./stored.ts";

import type { Cli } from "../../cli.ts";

type Copy = { from: string; to: string };
type Options = { packages?: string[]; copy?: Copy[]; run?: string[]; suite?: string; mirror?: string; maxBytes?: number; force?: boolean };

export function imageBuildCommand(cli: Cli): Command {
  return new Command("build")
    .description("build an image from Debian packages")
    .argument("<name>", "name of the image")
    .option("--packages <list>", "packages, separated by commas", addPackages)
    .option("--copy <src:dst>", "copy a file or folder of the host into it; may be repeated", addCopy)
    .option("--run <command>", "run a shell command inside it, after the copies; may be repeated", addRun)
    .option("--suite <name>", "release of the distribution (default: the host's own)")
    .option("--mirror <address>", "where packages come from (default: the host's apt sources)")
    .option("--max-bytes <bytes>", "limit of the unpacked size", parseBytes)
    .option("--force", "build even when an image made from the same inputs is there")
    .option("--json", "print JSON")
    .action(async (name: string, opts: Options) => {
      const { buildImage, checkName, prepareHome, resolveHome } = await import("@forkd/daemon");
      checkName("Image name", name);
      using display = showProgress();
      const home = await prepareHome(resolveHome());
      const { image, reused } = await buildImage(home, { packages: [], ...opts, name, signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      printStored(image, { name, json: cli.json, reused });
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

function addCopy(value: string, all: Copy[] = []): Copy[] {
  const at = value.lastIndexOf(":");
  if (at <= 0 || at === value.length - 1) throw new InvalidArgumentError("It must be SRC:DST.");
  return [...all, { from: value.slice(0, at), to: value.slice(at + 1) }];
}
