// forkd quickstart

import { Command, Option } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { codeOf } from "../errors.ts";
import { forkCount } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";
import { printForks } from "../terminal/sandbox-table.ts";
import { ensureImage } from "../guest/stored-image.ts";

import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";

const TAG = "quickstart";
const DEFAULT_IMAGE = "python-numpy";
const WARM_UP = { kernels: [{ language: "python" as const, code: "import numpy" }] };

export function quickstartCommand(cli: Cli): Command {
  return new Command("quickstart")
    .description("make the image and the snapshot 'quickstart' if they are missing, fork it, and print next steps")
    .option("-n, --count <count>", "how many sandboxes", forkCount, 10)
    .option("--image <image>", "a stored image, or a reference to pull", DEFAULT_IMAGE)
    .addOption(new Option("-y, --yes", "accepted: nothing is asked").hideHelp())
    .option("--json", "print JSON")
    .action(async (opts: { count: number; image: string }) => {
      const forkd = await connect(cli);
      if (!(await exists(cli, forkd))) {
        const image = await ensureImage(cli, forkd, opts.image);
        const warmUp = image === DEFAULT_IMAGE ? WARM_UP : undefined;
        await working(`Making the snapshot ${TAG}`, async (onProgress) =>
          forkd.createSnapshot(TAG, { image, warmUp, ...ABORTABLE, onProgress, signal: cli.signal }),
        );
      }
      const began = performance.now();
      const sandboxes = await working(`Forking ${opts.count}`, async () =>
        forkd.spawnSandboxes(TAG, { n: opts.count, ...ABORTABLE, signal: cli.signal }),
      );
      const ms = Math.round(performance.now() - began);
      if (cli.json) {
        printJson({ snapshot: TAG, ms, sandboxes });
        return;
      }
      printForks(sandboxes);
      printLine();
      printLine(`${sandboxes.length} sandboxes in ${ms} ms. Next:`);
      for (const line of nextSteps(sandboxes[0]?.id ?? "ID", sandboxes[0]?.kernels.includes("python") === true)) printLine(`  ${line}`);
    });
}

async function exists(cli: Cli, forkd: Controller): Promise<boolean> {
  try {
    await forkd.getSnapshot(TAG, { signal: cli.signal });
    return true;
  } catch (error) {
    if (codeOf(error) === "NOT_FOUND") return false;
    throw error;
  }
}

function nextSteps(id: string, hasPython: boolean): string[] {
  return [
    ...(hasPython ? [`forkd eval ${id} -- 'x = 6 * 7; x'`] : []),
    `forkd exec ${id} -- uname -a`,
    `forkd branch ${id} --tag mine`,
    "forkd fork mine -n 3",
    "forkd tree",
    `forkd kill --tag ${TAG}`,
  ];
}
