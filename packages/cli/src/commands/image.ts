// forkd image: the group of verbs about root file systems.

import { Command } from "commander";
import { imageBuildCommand } from "./image/build.ts";
import { imageImportCommand } from "./image/import.ts";
import { imageInspectCommand } from "./image/inspect.ts";
import { imageKernelCommand } from "./image/kernel.ts";
import { imageLsCommand } from "./image/ls.ts";
import { imagePullCommand } from "./image/pull.ts";
import { imageRmCommand } from "./image/rm.ts";

import type { Cli } from "../cli.ts";

export function imageCommand(cli: Cli): Command {
  return new Command("image")
    .description("root file systems: build, pull, import, list, remove")
    .addCommand(imageBuildCommand(cli))
    .addCommand(imagePullCommand(cli))
    .addCommand(imageImportCommand(cli))
    .addCommand(imageLsCommand(cli))
    .addCommand(imageInspectCommand(cli))
    .addCommand(imageRmCommand(cli))
    .addCommand(imageKernelCommand(cli), { hidden: true });
}
