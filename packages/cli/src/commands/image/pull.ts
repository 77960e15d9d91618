// forkd image pull

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { imageNameOf } from "../../options/names.ts";
import { registryLogin, registryOf } from "../../options/registry-login.ts";
import { makeImage } from "../../guest/stored-image.ts";
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
  const { name = imageNameOf(reference), maxBytes, insecureHttp } = opts;
  const forkd = await connect(cli);
  const source = { reference, name, maxBytes, insecureHttp, ...(await registryLogin(registryOf(reference))) };
  printStored(cli, name, await makeImage(cli, forkd, source, `Pulling ${name}`));
}
