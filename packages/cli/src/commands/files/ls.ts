// forkd files ls

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { guestPlace } from "../../copy/guest-place.ts";
import { positiveInteger } from "../../options/values.ts";
import { formatBytes, printJson, printTable } from "../../terminal/output.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { ListedFile } from "forkd";
import type { Cli } from "../../cli.ts";

type Options = UserOption & { depth?: number };

const LETTERS = { file: "-", directory: "d", symlink: "l", char: "c", block: "b", fifo: "p", socket: "s" } as const;

export function filesLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list a folder of a sandbox")
    .argument("<place>", "ID:/path")
    .option("--depth <count>", "also the folders below it, so many levels", positiveInteger)
    .addOption(userOption())
    .option("--json", "print JSON")
    .action(async (text: string, opts: Options) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      const files = await forkd.listFiles(sandbox, path, { depth: opts.depth, user: opts.user, signal: cli.signal });
      if (cli.json) printJson(files);
      else if (files.length > 0) printFiles(files, opts.depth === undefined);
    });
}

function printFiles(files: readonly ListedFile[], isFlat: boolean): void {
  printTable(files, [
    { title: "MODE", value: (file) => LETTERS[file.kind] + file.mode },
    { title: "OWNER", value: (file) => file.owner ?? String(file.uid) },
    { title: "GROUP", value: (file) => file.group ?? String(file.gid) },
    { title: "SIZE", value: (file) => (file.kind === "file" ? formatBytes(file.size) : ""), align: "right" },
    { title: "CHANGED", value: (file) => new Date(file.mtime_ms).toISOString().slice(0, 19) },
    { title: isFlat ? "NAME" : "PATH", value: (file) => nameOf(file, isFlat) },
  ]);
}

function nameOf(file: ListedFile, isFlat: boolean): string {
  const target = file.target === null ? "" : ` -> ${file.target}`;
  const closed = file.errno === undefined ? "" : ` (${file.errno})`;
  return `${isFlat ? file.name : file.path}${target}${closed}`;
}
