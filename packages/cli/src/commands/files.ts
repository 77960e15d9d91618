// forkd files: the group of verbs about the files of a sandbox.

import { Command } from "commander";
import { filesLsCommand } from "./files/ls.ts";
import { filesChmodCommand, filesChownCommand } from "./files/mode.ts";
import { filesCpCommand, filesMvCommand } from "./files/move.ts";
import { filesLnCommand, filesMkdirCommand, filesRmCommand } from "./files/entry.ts";
import { filesStatCommand } from "./files/stat.ts";
import { filesWatchCommand } from "./files/watch.ts";

import type { Cli } from "../cli.ts";

export function filesCommand(cli: Cli): Command {
  return new Command("files")
    .description("the files of a sandbox: list, stat, create, move, copy, remove, watch; 'forkd cp' copies in and out")
    .addCommand(filesLsCommand(cli))
    .addCommand(filesStatCommand(cli))
    .addCommand(filesMkdirCommand(cli))
    .addCommand(filesMvCommand(cli))
    .addCommand(filesCpCommand(cli))
    .addCommand(filesRmCommand(cli))
    .addCommand(filesChmodCommand(cli))
    .addCommand(filesChownCommand(cli))
    .addCommand(filesLnCommand(cli))
    .addCommand(filesWatchCommand(cli));
}
