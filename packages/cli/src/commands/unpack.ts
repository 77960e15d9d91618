// forkd unpack

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Command } from "commander";
import { counted } from "../copy/stream.ts";
import { connect } from "../daemon/connect.ts";
import { printJson, printLine, printWarnings } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";

import type { Unpacked } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { tag?: string | undefined; force?: boolean | undefined; keepNetwork?: boolean | undefined; quiet?: boolean | undefined };

export function unpackCommand(cli: Cli): Command {
  return new Command("unpack")
    .description("read a snapshot that 'forkd pack' made; it is checked as a whole, and appears complete or not at all")
    .argument("<file>", "the pack, or - for standard input")
    .option("--tag <tag>", "its tag here (default: the name in the pack)")
    .option("--force", "take the tag from the snapshot that has it")
    .option("--keep-network", "use the network policy of the pack, but never allow private networks or the host")
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (file: string, opts: Options) => unpackFile(cli, file, opts));
}

/** @param file a file, or - */
export async function unpackFile(cli: Cli, file: string, opts: Options): Promise<void> {
  const source = file === "-" ? undefined : await stat(file);
  const forkd = await connect(cli);
  const unpacked = await working(`Unpacking ${file}`, async (progress) => {
    const total = source?.isFile() ? source.size : undefined;
    const report = (done: number): void =>
      progress({ step: `Unpacking ${file}`, done, unit: "bytes", ...(total === undefined ? {} : { total }) });
    const content = counted(source ? createReadStream(file, { highWaterMark: 1 << 20 }) : process.stdin, total, { report });
    return forkd.unpack(content, { tag: opts.tag, force: opts.force, keepNetwork: opts.keepNetwork, signal: cli.signal });
  });
  printUnpacked(cli, unpacked, opts);
}

export function printUnpacked(cli: Cli, unpacked: Unpacked, { quiet }: Options): void {
  if (cli.json) {
    printJson(unpacked);
    return;
  }
  const { snapshot, added, signed_by: signer } = unpacked;
  printWarnings([unpacked]);
  if (quiet) printLine(snapshot.tag);
  else if (added.length === 0) printLine(`Snapshot ${snapshot.tag} was here already.`);
  else {
    const chain = added.length > 1 ? `, with ${added.length - 1} that it builds on` : "";
    printLine(
      `Snapshot ${snapshot.tag}: ${snapshot.memory_mib} MiB${chain}${signer === null ? "" : `, signed by ${signer.slice(0, 16)}`}.`,
    );
  }
}
