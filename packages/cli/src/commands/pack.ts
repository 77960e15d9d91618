// forkd pack

import { Command } from "commander";
import { counted, drain, isSpecial, writeWhole } from "../copy/stream.ts";
import { connect } from "../daemon/connect.ts";
import { addWords, compressionLevel } from "../options/values.ts";
import { formatBytes, printJson, printPlain, writeBytes } from "../terminal/output.ts";
import { withoutProgress, working } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";
import type { PackInfo } from "forkd";

type Options = { level?: number | undefined; sign?: string | undefined; without?: string[] | undefined };

export function packCommand(cli: Cli): Command {
  return new Command("pack")
    .description("write a snapshot to one file, with everything that another machine needs to fork it")
    .argument("<tag>", "tag of the snapshot")
    .option("-o, --output <file>", "output file, - for standard output (default: TAG.forkd)")
    .option("--level <n>", "zstd level: 1 is fast, 19 is small (default: 3)", compressionLevel)
    .option("--sign <key>", "sign it with one of the daemon's own keys ('forkd key new')")
    .option("--without <tags>", "leave out the data of snapshots that the receiver has; may be repeated", addWords)
    .option("--json", "print JSON")
    .action(async (tag: string, { output = `${tag}.forkd`, level, sign, without }: Options & { output?: string }) =>
      packInto(cli, tag, output, { level, sign, without }),
    );
}

/** @param output a file, or - */
export async function packInto(cli: Cli, tag: string, output: string, opts: Options): Promise<void> {
  const forkd = await connect(cli);
  const choice = { ...opts, signal: cli.signal };
  const show = output === "-" ? withoutProgress : working;
  const pack = await show(`Packing ${tag}`, async (progress) => {
    const info = await forkd.preparePack(tag, { ...choice, onProgress: progress });
    const report = (done: number): void => progress({ step: `Writing ${output}`, done, total: info.bytes, unit: "bytes" });
    const content = counted(forkd.readPack(tag, choice), info.bytes, { report });
    if (output === "-") await drain(content, async (chunk) => writeBytes("stdout", chunk));
    else await writeWhole(output, content, 0o600, await isSpecial(output));
    return info;
  });
  if (output === "-") return;
  if (cli.json) printJson({ ...pack, file: output });
  else
    printPlain(
      `${output}: ${formatBytes(pack.bytes)}, ${formatBytes(pack.content_bytes)} when unpacked${signedBy(pack.signed_by)}. ${runsOn(pack)}`,
    );
}

function runsOn({ isolation, cpu, cpu_vendor: vendor }: PackInfo): string {
  if (isolation === "emulated") return "It runs emulated, on any x86-64 machine.";
  return `It runs with KVM on a processor${vendor === null ? "" : ` of ${vendor}`} that has all of ${cpu}.`;
}

function signedBy(keys: readonly string[]): string {
  return keys.length === 0 ? "" : `, signed by ${keys.map((id) => id.slice(0, 16)).join(", ")}`;
}
