// forkd image kernel: prepares the guest kernel. Part of make setup, and therefore hidden.

import { Command } from "commander";
import { printJson, printLine } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";

import type { Cli } from "../../cli.ts";

export function imageKernelCommand(cli: Cli): Command {
  return new Command("kernel")
    .description("prepare the guest kernel")
    .option("--refresh", "look for a newer one")
    .option("--quiet", "print nothing when it exists")
    .option("--json", "print JSON")
    .action(async (opts: { refresh?: boolean; quiet?: boolean }) => {
      const { ensureGuestKernel, installation, prepareHome, resolveHome } = await import("@forkd/runtime");
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
