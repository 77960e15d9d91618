// forkd image import

import { resolve } from "node:path";
import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { makeImage } from "../../guest/stored-image.ts";
import { parseBytes, printStored } from "./stored.ts";

import type { Cli } from "../../cli.ts";

export function imageImportCommand(cli: Cli): Command {
  return new Command("import")
    .description("import an archive (docker save, OCI layout, tar of a root file system) or a folder that is an OCI layout")
    .argument("<path>", "file or folder of this machine; not over the network")
    .requiredOption("--name <name>", "name of the image")
    .option("--max-bytes <bytes>", "limit of the unpacked size", parseBytes)
    .option("--json", "print JSON")
    .action(async (path: string, { name, maxBytes }: { name: string; maxBytes?: number }) => {
      const forkd = await connect(cli);
      // absolute, because the daemon has another working folder
      const image = await makeImage(cli, forkd, { name, file: resolve(path), maxBytes }, `Importing ${name}`);
      printStored(cli, name, image);
    });
}
