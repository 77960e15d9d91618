// forkd uninstall

import { join, resolve } from "node:path";
import { Command } from "commander";
import { ask } from "../terminal/ask.ts";
import { stopDaemon } from "../daemon/stop.ts";
import { connectIfRunning, connectOrStart } from "../daemon/connect.ts";
import { failure, usageError } from "../errors.ts";
import { formatBytes, printJson, printLine, printParagraph, printTable } from "../terminal/output.ts";
import { paths } from "../daemon/paths.ts";
import { working } from "../terminal/progress.ts";
import { planOf, remove } from "../daemon/uninstall.ts";

import type { Controller, Status } from "forkd";
import type { Cli } from "../cli.ts";
import type { Paths } from "../daemon/paths.ts";
import type { Found, Plan } from "../daemon/uninstall.ts";

const NOT_TOUCHED =
  "Not touched: this checkout, packages of the distribution, services that you set up, completion in your shell's start-up file, and entries of 'forkd mcp install' in other programs.";

type Options = { yes?: boolean; dryRun?: boolean };
type Running = { forkd: Controller; status: Status };

export function uninstallCommand(cli: Cli): Command {
  return new Command("uninstall")
    .description("remove all your data of forkd on this machine: sandboxes, daemon, snapshots, images, caches")
    .option("--dry-run", "only list what would be removed")
    .option("-y, --yes", "do not ask; needed without a terminal")
    .option("--json", "print JSON; needs --yes or --dry-run")
    .action(async (opts: Options) => {
      if (cli.daemonUrl !== undefined) throw usageError("uninstall is about this machine: leave --daemon-url and FORKD_URL out.");
      if (cli.json && !opts.yes && !opts.dryRun) throw usageError("--json needs --yes or --dry-run.");
      const where = paths();
      const running = await daemonOf(cli, where);
      const plan = await planOf(where);
      if (!opts.dryRun && !opts.yes) {
        show(cli, plan, running, { isDone: false });
        if (!(await ask("Remove all of it?", { signal: cli.signal }))) {
          printLine("Nothing was removed.");
          return;
        }
      }
      const ended = opts.dryRun ? running : await uninstall(cli, where, running);
      show(cli, plan, ended, { isDone: !opts.dryRun });
    });
}

/** Resolves with the daemon that was stopped */
async function uninstall(cli: Cli, where: Paths, running: Running | undefined): Promise<Running | undefined> {
  const daemon = await working("Ending sandboxes and the daemon", async () => endAll(cli, where, running));
  // from here on without the signal: a partly removed store is unusable
  await working("Removing", async () => remove(await planOf(where)));
  return daemon;
}

/** VMs outlive the daemon: if some are running, a daemon is started to end them */
async function endAll(cli: Cli, where: Paths, running: Running | undefined): Promise<Running | undefined> {
  const { vmmsOf } = await import("@forkd/runtime");
  const [all, own] = await Promise.all([vmmsOf(where.run), vmmsOf(join(where.run, "daemon"))]);
  const others = all.filter(({ pid }) => !own.some((vmm) => vmm.pid === pid)).map(({ pid }) => pid);
  if (others.length > 0)
    throw failure(
      "IN_USE",
      `Cannot uninstall: VMs of another command, such as 'forkd demo' or 'forkd bench', run (${others.join(", ")}).`,
      "Let it end, then run 'forkd uninstall' again. Nothing was removed.",
    );
  let daemon = running;
  if (!daemon && own.length > 0) {
    const { controller: forkd } = await connectOrStart(cli);
    daemon = { forkd, status: await forkd.status({ signal: cli.signal }) };
  }
  if (daemon) await stopDaemon(daemon.forkd, daemon.status, { killSandboxes: true, isLocal: true, signal: cli.signal });
  return daemon;
}

/** The daemon of another store may listen in FORKD_RUN; its sandboxes must not be ended */
async function daemonOf(cli: Cli, where: Paths): Promise<Running | undefined> {
  const forkd = await connectIfRunning(cli);
  if (!forkd) return undefined;
  const status = await forkd.status({ signal: cli.signal });
  if (resolve(status.home) === resolve(where.home)) return { forkd, status };
  throw failure(
    "IN_USE",
    `Cannot uninstall ${where.home}: the daemon at ${where.socket} has the store ${status.home}.`,
    "Set FORKD_HOME and FORKD_RUN as they were when that daemon was started. Nothing was removed.",
  );
}

function show(cli: Cli, plan: Plan, running: Running | undefined, { isDone }: { isDone: boolean }): void {
  const entries = plan.folders.flatMap((folder) => folder.entries);
  const bytes = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  const left = plan.folders.flatMap((folder) => folder.foreign);
  const daemon = running ? { pid: running.status.pid, sandboxes: running.status.sandboxes } : null;
  if (cli.json) {
    printJson({ dry_run: !isDone, daemon, removed: entries, bytes, left });
    return;
  }
  if (daemon)
    printLine(
      `${isDone ? "Stopped" : "Would stop"} the daemon (pid ${daemon.pid}) and ${isDone ? "ended" : "end"} its ${daemon.sandboxes} sandboxes.`,
    );
  if (entries.length === 0) printLine("There are no files to remove.");
  else
    printTable<Found>(entries, [
      { title: isDone ? "REMOVED" : "WOULD GO", value: ({ path }) => path, wraps: true },
      { title: "SIZE", value: (entry) => formatBytes(entry.bytes), align: "right" },
    ]);
  for (const path of left) printLine(`Kept, because forkd did not create it: ${path}`);
  printLine();
  printParagraph(`${isDone ? "Freed" : "Would free"} ${formatBytes(bytes)}. ${NOT_TOUCHED}`);
}
