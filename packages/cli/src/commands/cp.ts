// forkd cp

import { Command } from "commander";
import { copyIn, copyOut, parsePlace } from "../copy.ts";
import { connect } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { formatBytes, printJson, printNote } from "../output.ts";
import { withoutProgress, working } from "../progress.ts";

import type { Cli } from "../cli.ts";

export function cpCommand(cli: Cli): Command {
  return new Command("cp")
    .description("copy a file into a sandbox or out of it; its mode is kept")
    .argument("<source>", "ID:/path, a file here, or - for standard input")
    .argument("<destination>", "ID:/path, a file or folder here, or - for standard output")
    .option("--parents", "make the missing folders of the destination")
    .option("--json", "print JSON")
    .action(async (source: string, destination: string, opts: { parents?: boolean }) => {
      const from = parsePlace(source);
      const to = parsePlace(destination);
      if ((from.sandbox === undefined) === (to.sandbox === undefined))
        throw usageError("Exactly one side must be in a sandbox: forkd cp FILE ID:/path, or forkd cp ID:/path FILE.");
      const forkd = await connect(cli);
      const show = destination === "-" ? withoutProgress : working;
      const copied = await show(`Copying ${source}`, async (progress) => {
        const report = (done: number, total: number | undefined): void =>
          progress({ step: `Copying ${source}`, done, unit: "bytes", ...(total === undefined ? {} : { total }) });
        const transfer = { signal: cli.signal, report, parents: opts.parents === true };
        if (to.sandbox !== undefined) return copyIn(forkd, from.path, { ...to, sandbox: to.sandbox }, transfer);
        if (from.sandbox !== undefined) return copyOut(forkd, { ...from, sandbox: from.sandbox }, to.path, transfer);
        throw usageError("Exactly one side must be in a sandbox.");
      });
      if (destination === "-") return;
      if (cli.json) printJson(copied);
      else printNote(`Copied ${formatBytes(copied.bytes)} to ${copied.to}.`);
    });
}
