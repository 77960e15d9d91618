// forkd status

import { Command } from "commander";
import { connectIfRunning, NO_ADDRESS } from "../daemon/connect.ts";
import { codeOf } from "../errors.ts";
import { EXIT_NOT_RUNNING } from "../exit.ts";
import { formatDuration } from "../terminal/format.ts";
import { printFacts, printJson, printLine } from "../terminal/output.ts";

import type { Status } from "forkd";
import type { Cli } from "../cli.ts";

/** Short, because status reports a slow daemon in place of waiting for it */
const TIMEOUT_MS = 10_000;

export function statusCommand(cli: Cli): Command {
  return new Command("status")
    .description("print state and limits of the daemon and its host; exit code 3 when it does not run")
    .option("--json", "print JSON")
    .action(async () => {
      const status = await readStatus(cli);
      if (!status) cli.exitCode = EXIT_NOT_RUNNING;
      if (cli.json) printJson({ running: status !== undefined, ...status });
      else if (status) printFacts(factsOf(status));
      else printLine("The daemon is not running. Commands that need it start it; so does 'forkd up'.");
    });
}

async function readStatus(cli: Cli): Promise<Status | undefined> {
  try {
    const forkd = await connectIfRunning(cli);
    return await forkd?.status({ signal: cli.signal, timeoutMs: TIMEOUT_MS });
  } catch (error) {
    if (codeOf(error) === "DAEMON_UNREACHABLE") return undefined;
    throw error;
  }
}

function factsOf(status: Status): [string, string][] {
  const { limits, memory } = status;
  return [
    ["daemon", `${status.version}, pid ${status.pid}, up ${formatDuration(status.uptime_secs)}`],
    ["socket", status.socket],
    ["address", status.bind ? `${status.tls ? "https" : "http"}://${status.bind}` : NO_ADDRESS],
    ["servers", status.proxy_url ? status.proxy_url.replace("://", "://PORT-ID.") : "have no addresses for browsers"],
    ["store", status.home],
    ["accelerator", `${status.accelerator}: ${status.accelerator_reason}`],
    ["isolation", isolationOf(status)],
    ["confinement", confinementOf(status)],
    ["engine", status.engine],
    ["sandboxes", `${status.sandboxes} of at most ${limits.max_sandboxes}`],
    ["snapshots", String(status.snapshots)],
    ["images", String(status.images)],
    ["pool", String(status.pool_waiting)],
    ["branches", `${status.branches_in_flight} of at most ${limits.branch_concurrency} at a time`],
    ["limits", limitsOf(status)],
    ["memory", `${memory.committed_mib} MiB given to guests of ${limits.max_memory_mib ?? "any"}, ${memory.available_mib} MiB free`],
  ];
}

function isolationOf({ isolation, isolation_policy: policy }: Status): string {
  return policy === "kvm" && isolation !== "kvm" ? `${isolation}, although kvm is demanded: no VM starts` : isolation;
}

function confinementOf({ confinement, confinement_reason: reason, confinement_policy: policy }: Status): string {
  return reason === null ? confinement : `${confinement}, although it is ${policy}: ${reason}`;
}

/** Limits that a sandbox can have on this host */
function limitsOf({ sandbox_limits: { applicable, reason } }: Status): string {
  const names = applicable.length === 0 ? "none for single sandboxes" : applicable.join(", ");
  return reason === null ? names : `${names}: ${reason}`;
}
