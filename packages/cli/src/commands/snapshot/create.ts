// forkd snapshot create

import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { Command } from "commander";
import { ABORTABLE, connect } from "../../daemon/connect.ts";
import { acceptNetwork, networkOf, type NetworkFlags } from "../../options/network.ts";
import { acceptLabels, labelsOf, type LabelFlags } from "../../options/snapshot-labels.ts";
import { addCommandWords, addPair, addText, positiveInteger, positiveNumber } from "../../options/values.ts";
import { working } from "../../terminal/progress.ts";
import { printSnapshot } from "../../terminal/snapshot-table.ts";

import type { WarmUpOptions } from "forkd";
import type { Cli } from "../../cli.ts";

type Options = NetworkFlags &
  LabelFlags & {
    image?: string;
    memoryMib?: number;
    vcpus?: number;
    cpu?: string;
    hugepages?: boolean;
    diskMib?: number;
    warmPython?: string;
    code?: string;
    warmNode?: string;
    warmNodeCode?: string;
    warmExec?: string[][];
    warmSh?: string[];
    warmTimeoutSecs?: number;
    warmNothing?: boolean;
    warm?: boolean;
    env?: Record<string, string>;
    quiet?: boolean;
  };

export function snapshotCreateCommand(cli: Cli): Command {
  const command = new Command("create")
    .description("boot an image, warm it and freeze it")
    .argument("<tag>", "tag of the snapshot")
    .option("--image <name>", "a stored image (default: the daemon's default image)")
    .option("--memory-mib <mib>", "guest RAM", positiveInteger)
    .option("--vcpus <count>", "guest CPUs", positiveInteger)
    .option(
      "--cpu <model>",
      "baseline (runs on every host), host, or a CPU model of the engine (default: the best that this host can give)",
    )
    .option("--hugepages", "forks map a copy of its memory in huge pages of the host")
    .option("--disk-mib <mib>", "size of the guest's writable disk (default: writes take its RAM)", positiveInteger)
    .option("--warm-python <file>", "keep a Python warm that has run this file; - is standard input")
    .option("-c, --code <code>", "the same with code in place of a file")
    .option("--warm-node <file>", "keep a Node warm that has run this file; - is standard input")
    .option("--warm-node-code <code>", "the same with code in place of a file")
    .option("--warm-exec <words>", "run this program first, without a shell: words or a JSON array; may be repeated", addCommandWords)
    .option("--warm-sh <command>", "run this shell command first; may be repeated, and runs after --warm-exec", addText)
    .option("--warm-timeout-secs <secs>", "limit for each program and each code", positiveNumber)
    .option("--warm-nothing", "no interpreter (default without any --warm option: Python, if the image has it)")
    .option("--warm", "prepare its first fork as well: the same as `forkd snapshot pool TAG 1` afterwards")
    .option("--env <key=value>", "environment of every process; may be repeated", addPair);
  return acceptNetwork(acceptLabels(command))
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (tag: string, opts: Options) => {
      const warmUp = await warmUpOf(opts);
      const forkd = await connect(cli);
      const snapshot = await working(`Making the snapshot ${tag}`, async (onProgress) =>
        forkd.createSnapshot(tag, {
          ...ABORTABLE,
          image: opts.image,
          memoryMib: opts.memoryMib,
          vcpus: opts.vcpus,
          cpu: opts.cpu,
          hugepages: opts.hugepages,
          diskMib: opts.diskMib,
          warmUp,
          env: opts.env,
          ...labelsOf(opts),
          network: networkOf(opts),
          onProgress,
          signal: cli.signal,
        }),
      );
      if (opts.warm) await forkd.updateSnapshot(tag, { pool: 1, signal: cli.signal });
      printSnapshot(cli, snapshot, opts);
    });
}

async function warmUpOf(opts: Options): Promise<WarmUpOptions | undefined> {
  const kernels: NonNullable<WarmUpOptions["kernels"]> = [];
  const python = opts.code ?? (opts.warmPython === undefined ? undefined : await codeOf(opts.warmPython));
  if (python !== undefined) kernels.push({ language: "python", code: python });
  const node = opts.warmNodeCode ?? (opts.warmNode === undefined ? undefined : await codeOf(opts.warmNode));
  if (node !== undefined) kernels.push({ language: "node", code: node });
  const exec = [...(opts.warmExec ?? []), ...(opts.warmSh ?? []).map((command) => ["sh", "-c", command])];
  if (kernels.length === 0 && exec.length === 0) return opts.warmNothing ? { kernels: [] } : undefined;
  return { exec, kernels, timeoutSecs: opts.warmTimeoutSecs };
}

async function codeOf(file: string): Promise<string> {
  return file === "-" ? text(process.stdin) : readFile(file, "utf8");
}
