// forkd snapshot: the group of verbs about frozen VMs. Without a verb it takes the options of the older forkd.

import { Command, Option } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { positiveInteger } from "../options/values.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { working } from "../terminal/progress.ts";
import { printBranch, printSnapshot } from "../terminal/snapshot-table.ts";
import { snapshotCompactSubcommand } from "./snapshot/compact.ts";
import { snapshotCreateCommand } from "./snapshot/create.ts";
import { snapshotInfoSubcommand } from "./snapshot/info.ts";
import { snapshotLsCommand } from "./snapshot/ls.ts";
import { snapshotPoolCommand } from "./snapshot/pool.ts";
import { snapshotRenameCommand } from "./snapshot/rename.ts";
import { snapshotRmCommand } from "./snapshot/rm.ts";

import type { Cli } from "../cli.ts";

type Options = {
  tag?: string;
  fromSandbox?: string;
  diff?: boolean;
  live?: boolean;
  wait: boolean;
  image?: string;
  memSizeMib?: number;
  kernel?: string;
  rootfs?: string;
};

/** The daemon refuses them where they would select what is booted */
const MACHINE = ["--kernel <file>", "--rootfs <file>"];
const PLUMBING = ["--rw", "--tap <device>", "--boot-wait-secs <secs>", "--keep-workdir", "--volume <host:guest>"];

export function snapshotCommand(cli: Cli): Command {
  const command = new Command("snapshot")
    .description("frozen warm VMs: create, list, remove, compact; with --tag and no verb, the older form of create and branch")
    .usage("[command]")
    .addCommand(snapshotCreateCommand(cli))
    .addCommand(snapshotLsCommand(cli))
    .addCommand(snapshotInfoSubcommand(cli))
    .addCommand(snapshotRmCommand(cli))
    .addCommand(snapshotCompactSubcommand(cli))
    .addCommand(snapshotRenameCommand(cli))
    .addCommand(snapshotPoolCommand(cli))
    .optionsGroup("Older form:")
    .option("--tag <tag>", "tag of the new snapshot")
    .option("--from-sandbox <id>", "branch this sandbox; without it, boot an image")
    .addOption(new Option("--diff", "accepted: every branch is a short pause and a delta").conflicts("live"))
    .option("--live", "accepted, as --diff")
    .option("--no-wait", "return as soon as the sandbox runs again")
    .option("--image <name>", "the image to boot (default: the daemon's default image)")
    .option("--mem-size-mib <mib>", "guest RAM", positiveInteger)
    .option("--json", "print JSON");
  return acceptLegacyOptions(command, [...MACHINE, ...PLUMBING]).action(async (opts: Options) => {
    if (opts.tag === undefined && opts.fromSandbox === undefined) command.help({ error: true });
    const ignored = opts.fromSandbox === undefined ? PLUMBING : [...MACHINE, ...PLUMBING];
    noteLegacyOptions(command, ignored, "a snapshot is made of a stored image, and its warm-up says when it is ready");
    if (opts.fromSandbox === undefined) await create(cli, opts);
    else await branch(cli, opts.fromSandbox, opts);
  });
}

async function create(cli: Cli, opts: Options): Promise<void> {
  const { tag } = opts;
  if (tag === undefined) throw usageError("Give the new snapshot a --tag.");
  const forkd = await connect(cli);
  const { image, kernel, rootfs, memSizeMib: memoryMib } = opts;
  const request = { image, kernel, rootfs, memoryMib, signal: cli.signal };
  const snapshot = await working(`Making the snapshot ${tag}`, async (onProgress) =>
    forkd.createSnapshot(tag, { ...request, ...ABORTABLE, onProgress }),
  );
  printSnapshot(cli, snapshot, {});
}

async function branch(cli: Cli, id: string, opts: Options): Promise<void> {
  const mode = opts.live ? "live" : opts.diff ? "diff" : undefined;
  const forkd = await connect(cli);
  const request = { tag: opts.tag, mode, ...(opts.wait ? {} : { wait: false }), signal: cli.signal } as const;
  printBranch(cli, id, await working(`Branching ${id}`, async () => forkd.branchSandbox(id, request)), {});
}
