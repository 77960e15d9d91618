// forkd up

import { Command, Option } from "commander";
import { becomeDaemon } from "../daemon-process.ts";
import { connectIfRunning, startOwn } from "../daemon.ts";
import { printFacts, printJson, printLine, printNote } from "../output.ts";
import { paths } from "../paths.ts";

import type { Status } from "forkd";
import type { Cli } from "../cli.ts";

/** Every setting of the daemon, which checks the values itself */
const SETTINGS: [flags: string, about: string][] = [
  ["--bind <host:port>", "address to listen on beside the socket; none for no address (default: 127.0.0.1:8889)"],
  ["--tls-cert <file>", "certificate, for https"],
  ["--tls-key <file>", "its key"],
  ["--insecure", "allow plain http on an address that others can reach"],
  ["--proxy-domain <domain>", "servers in sandboxes have names below it; none for no names (default: localhost)"],
  ["--cors-origins <list>", "origins of web pages that may ask, separated by commas; * for all (default: none)"],
  ["--share-roots <list>", "folders in which admins may share others with guests over the network, separated by commas (default: none)"],
  ["--token-file <file>", "file with one admin token"],
  ["--audit-log <file>", "where every request is written down; none for nowhere"],
  ["--max-sandboxes <count>", "the most sandboxes that live at once (default: 1000)"],
  ["--max-memory-mib <mib>", "limit of the sum of guest RAM (default: none)"],
  ["--max-disk-mib <mib>", "limit of the sum of the disks of running sandboxes (default: none)"],
  ["--min-free-mib <mib>", "memory that the host keeps free (default: 512)"],
  ["--branch-concurrency <count>", "branches at a time (default: 4)"],
  ["--parallelism <count>", "VMs that start at a time (default: cores + 1)"],
  ["--confinement <policy>", "required: no VM runs where its VMM cannot be confined; preferred: it runs without (default: preferred)"],
  ["--default-image <name>", "image of snapshots that name none (default: python-numpy)"],
  ["--drain-secs <secs>", "how long a stop waits for requests (default: 30)"],
  ["--exit-when-idle-secs <secs>", "end after so long without work; 0 for never (default: 0)"],
  ["--log-level <level>", "trace, debug, info, warn, error, fatal, silent (default: info)"],
];

/** Of the older controller; the daemon says that they have no effect */
const IGNORED = ["--state <file>", "--snapshot-root <folder>", "--prewarm-scratch-dir <folder>"];

export function upCommand(cli: Cli): Command {
  const command = new Command("up").description(
    "start the daemon in the background; every option is also a FORKD_* variable and a line of the file",
  );
  for (const [flags, about] of SETTINGS) command.option(flags, about);
  for (const flags of IGNORED) command.addOption(new Option(flags).hideHelp());
  return command
    .option("--foreground", "stay in the foreground, with its log on standard error")
    .option("--json", "print JSON")
    .action(async (opts: { foreground?: boolean }) => {
      const args = daemonOptions(command);
      if (opts.foreground) becomeDaemon(args);
      // an address in FORKD_URL is another daemon's
      const running = await connectIfRunning({ ...cli, daemonUrl: undefined });
      const { controller, started } = running ? { controller: running, started: false } : await startOwn(cli, args);
      const status = await controller.status({ signal: cli.signal });
      if (!started && args.length > 0) printNote("Note: it is running already, so the options have no effect; 'forkd down' first.");
      if (cli.json) printJson({ started, ...status });
      else printUp(status, started);
    });
}

/** What was given, as the daemon takes it */
function daemonOptions(command: Command): string[] {
  return [...SETTINGS.map(([flags]) => flags), ...IGNORED].flatMap((flags) => {
    const option = new Option(flags);
    const value: unknown = command.getOptionValue(option.attributeName());
    if (value === true) return [option.long ?? ""];
    return typeof value === "string" ? [`${option.long}=${value}`] : [];
  });
}

function printUp(status: Status, isNew: boolean): void {
  printLine(isNew ? `The daemon runs (pid ${status.pid}).` : `The daemon is running already (pid ${status.pid}).`);
  const scheme = status.tls ? "https" : "http";
  printFacts([
    ["socket", `${status.socket} (for your own user, no token needed)`],
    ["address", status.bind ? `${scheme}://${status.bind} (needs a token: forkd token create NAME)` : "none"],
    ["log", paths().log],
  ]);
}
