// forkd image import

import { Command } from "commander";
import { showProgress } from "../../progress.ts";
import { parseBytes, printStored } from "./stored.ts";

import type { Cli } from "../../cli.ts";

export function imageImportCommand(cli: Cli): Command {
  return new Command("import")
    .description("import an archive (docker save, OCI layout, tar of a root file system) or a folder that is an OCI layout")
    .argument("<path>", "file or folder")
    .requiredOption("--name <name>", "name of the image")
    .option("--max-bytes <bytes>", "limit of the unpacked size", parseBytes)
    .option("--json", "print JSON")
    .action(async (path: string, opts: { name: string; maxBytes?: number }) => {
      const { checkName, importImage, prepareHome, resolveHome } = await import("@forkd/daemon");
      checkName("Image name", opts.name);
      using display = showProgress();
      const home = await prepareHome(resolveHome());
      const image = await importImage(home, path, { ...opts, signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      printStored(image, { name: opts.name, json: cli.json });
    });
}
