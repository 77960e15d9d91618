// forkd cp

import { stat } from "node:fs/promises";
import { Command } from "commander";
import { copyIn, copyOut, parsePlace, relativePlace } from "../copy/stream.ts";
import { copyTreeIn, copyTreeOut } from "../copy/tree.ts";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { formatBytes, printJson, printNote } from "../terminal/output.ts";
import { withoutProgress, workingOnTerminal } from "../terminal/progress.ts";

import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";
import type { Copied, GuestPlace, Transfer } from "../copy/stream.ts";

const ONE_SIDE = "Exactly one side must be in a sandbox: forkd cp FILE ID:/path, or forkd cp ID:/path FILE.";

type Options = { recursive?: boolean; parents?: boolean; user?: string };

export function cpCommand(cli: Cli): Command {
  return new Command("cp")
    .description("copy a file, or with -r a folder, into a sandbox or out of it; modes are kept")
    .argument("<source>", "ID:/path, a file or folder here, or - for standard input")
    .argument("<destination>", "ID:/path, a file or folder here, or - for standard output")
    .option("-r, --recursive", "folders with their contents")
    .option("--parents", "create missing folders of the destination")
    .option("--user <name>", "user of the guest whose rights count and who owns new files (default: root)")
    .option("--json", "print JSON")
    .action(async (source: string, destination: string, opts: Options) => {
      const [from, to] = [parsePlace(source), parsePlace(destination)];
      if ((from.sandbox === undefined) === (to.sandbox === undefined))
        throw usageError(relativePlace(source) ?? relativePlace(destination) ?? ONE_SIDE);
      const forkd = await connect(cli);
      const show = destination === "-" ? withoutProgress : workingOnTerminal;
      const copied = await show(`Copying ${source}`, async (progress) => {
        const report = (done: number, total: number | undefined): void =>
          progress({ step: `Copying ${source}`, done, unit: "bytes", ...(total === undefined ? {} : { total }) });
        const transfer = { signal: cli.signal, report, parents: opts.parents === true, user: opts.user };
        const isTree = opts.recursive === true;
        if (to.sandbox !== undefined) return intoGuest(forkd, from.path, { ...to, sandbox: to.sandbox }, transfer, isTree);
        return outOfGuest(forkd, { ...from, sandbox: from.sandbox ?? "" }, to.path, transfer, isTree);
      });
      if (destination === "-") return;
      if (cli.json) printJson(copied);
      else printNote(`Copied ${formatBytes(copied.bytes)} to ${copied.to}.`);
    });
}

/** With -r a single file is still copied as a file */
async function intoGuest(forkd: Controller, file: string, to: GuestPlace, opts: Transfer, isTree: boolean): Promise<Copied> {
  if (isTree && file !== "-" && (await stat(file)).isDirectory()) return copyTreeIn(forkd, file, to, opts);
  return copyIn(forkd, file, to, opts);
}

async function outOfGuest(forkd: Controller, from: GuestPlace, file: string, opts: Transfer, isTree: boolean): Promise<Copied> {
  if (!isTree || file === "-") return copyOut(forkd, from, file, opts);
  const { kind } = await forkd.statFile(from.sandbox, from.path, { follow: true, user: opts.user, signal: opts.signal });
  return kind === "directory" ? copyTreeOut(forkd, from, file, opts) : copyOut(forkd, from, file, opts);
}
