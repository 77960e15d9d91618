// forkd image kernel: gets the guest kernel ready. Part of make setup, and hidden for that reason.

import { Command } from "commander";
import { printJson, printLine } from "../../output.ts";
import { showProgress } from "../../progress.ts";

import type { Cli } from "../../cli.ts";

export function imageKernelCommand(cli: Cli): Command {
  return new Command("kernel")
    .description("get the guest kernel ready")
    .option("--refresh", "look for a newer one")
    .option("--quiet", "print nothing when it is there")
    .option("--json", "print JSON")
    .action(async (opts: { refresh?: boolean; quiet?: boolean }) => {
      const { ensureGuestKernel, installation, prepareHome, resolveHome } = await import("@forkd/daemon");
      using display = showProgress();
      const kernel = await ensureGuestKernel(await prepareHome(resolveHome()), {
        ...installation,
        file: process.env["FORKD_GUEST_KERNEL"] || undefined,
        refresh: opts.refresh === true,
        signal: cli.signal,
        progress: display.onEvent,
      });
      display[Symbol.dispose]();
      if (cli.json) printJson(kernel);
      else if (!opts.quiet) printLine(`Guest kernel ${kernel.release}: ${kernel.vmlinuz}`);
    });
}
