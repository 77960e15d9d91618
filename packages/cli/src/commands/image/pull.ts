// forkd image pull

import { Command } from "commander";
import { imageNameOf } from "../../image-name.ts";
import { showProgress } from "../../progress.ts";
import { parseBytes, printStored } from "./stored.ts";

import type { Cli } from "../../cli.ts";

type Options = { name?: string | undefined; maxBytes?: number; insecureHttp?: boolean };

export function imagePullCommand(cli: Cli): Command {
  return new Command("pull")
    .description("pull an image for linux/amd64 from a registry")
    .argument("<reference>", "[registry/]name[:tag][@sha256:digest]")
    .option("--name <name>", "name of the image (default: the last part of the reference, with its tag)")
    .option("--max-bytes <bytes>", "limit of the unpacked size", parseBytes)
    .option("--insecure-http", "plain http to a registry that is not this machine")
    .option("--json", "print JSON")
    .action(async (reference: string, opts: Options) => pullNamed(cli, reference, opts));
}

export async function pullNamed(cli: Cli, reference: string, opts: Options): Promise<void> {
  const { checkName, prepareHome, pullImage, resolveHome } = await import("@forkd/daemon");
  const name = checkName("Image name", opts.name ?? imageNameOf(reference));
  using display = showProgress();
  const home = await prepareHome(resolveHome());
  const image = await pullImage(home, reference, {
    ...opts,
    name,
    username: process.env["FORKD_REGISTRY_USER"] || undefined,
    password: process.env["FORKD_REGISTRY_PASSWORD"] || undefined,
    signal: cli.signal,
    progress: display.onEvent,
  });
  display[Symbol.dispose]();
  printStored(image, { name, json: cli.json });
}
