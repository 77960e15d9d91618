// forkd parent build: the older form of image pull

import { Command } from "commander";
import { usageError } from "../errors.ts";
import { addWords } from "../options/values.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { pullNamed } from "./image/pull.ts";

import type { Cli } from "../cli.ts";

const PLUMBING = ["-o, --out <file>", "--size-mib <mib>"];

export function parentCommand(cli: Cli): Command {
  const build = new Command("build")
    .description("the same as image pull")
    .argument("<image>", "[registry/]name[:tag][@sha256:digest]")
    .option("--name <name>", "name of the image (default: the last part of the reference, with its tag)")
    .option("--extra <packages>", "not possible for pulled images; see 'forkd image build'", addWords)
    .option("--json", "print JSON");
  acceptLegacyOptions(build, PLUMBING).action(async (reference: string, opts: { name?: string; extra?: string[] }) => {
    if (opts.extra) throw usageError("--extra is not possible for a pulled image: use 'forkd image build NAME --packages …'.");
    noteLegacyOptions(build, PLUMBING, "images are kept in the store, as large as they are");
    await pullNamed(cli, reference, { name: opts.name });
  });
  return new Command("parent").description("older forms about images").addCommand(build);
}
