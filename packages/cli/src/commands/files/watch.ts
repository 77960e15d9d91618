// forkd files watch

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { guestPlace } from "../../copy/guest-place.ts";
import { positiveInteger, wholeNumber } from "../../options/values.ts";
import { printJsonLine, printNote, printPlain } from "../../terminal/output.ts";
import { userOption, type UserOption } from "./user-option.ts";

import type { FileEvent } from "forkd";
import type { Cli } from "../../cli.ts";

type Options = UserOption & { recursive?: boolean; debounceMs?: number; count?: number };

export function filesWatchCommand(cli: Cli): Command {
  return new Command("watch")
    .description("print changes in a folder of a sandbox until Ctrl-C")
    .argument("<place>", "ID:/path")
    .option("-r, --recursive", "also everything below, and folders that are created there later")
    .option("--debounce-ms <ms>", "collect changes for so long and print repeated ones once", wholeNumber)
    .option("-n, --count <count>", "end after so many", positiveInteger)
    .addOption(userOption())
    .option("--json", "print one JSON value per line")
    .action(async (text: string, opts: Options) => {
      const { sandbox, path } = guestPlace(text);
      const forkd = await connect(cli);
      cli.isViewer = true;
      const { recursive, debounceMs, user } = opts;
      await using watch = await forkd.watchFiles(sandbox, path, { recursive, debounceMs, user, signal: cli.signal });
      let left = opts.count ?? Infinity;
      if (!cli.json) printNote(`Watching ${text}.`);
      for await (const event of watch) {
        if (cli.json) printJsonLine(event);
        else printPlain(lineOf(event));
        if (--left <= 0) return;
      }
      // the iteration ends without an error after Ctrl-C, and when the folder is removed
      cli.signal.throwIfAborted();
    });
}

function lineOf({ type, path = "", from }: FileEvent): string {
  return `${type.padEnd(10)}  ${from === undefined ? path : `${from} -> ${path}`}`.trimEnd();
}
