// forkd inspect

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { formatMachine, formatMs, formatPairs, formatTime } from "../format.ts";
import { printFacts, printJson } from "../output.ts";

import type { SandboxInfo } from "forkd";
import type { Cli } from "../cli.ts";

export function inspectCommand(cli: Cli): Command {
  return new Command("inspect")
    .description("print everything about one sandbox, and what was done to make it a machine of its own")
    .argument("<id>", "id or name")
    .option("--json", "print JSON")
    .action(async (id: string) => {
      const forkd = await connect(cli);
      const sandbox = await forkd.getSandbox(id, { signal: cli.signal });
      if (cli.json) printJson(sandbox);
      else printFacts(factsOf(sandbox));
    });
}

function factsOf(sandbox: SandboxInfo): [string, string][] {
  const { certificate } = sandbox;
  return [
    ["id", sandbox.id],
    ["name", sandbox.name ?? "-"],
    ["snapshot", `${sandbox.snapshot_tag} (${sandbox.snapshot_id})`],
    ["state", sandbox.reason ? `${sandbox.state}: ${sandbox.reason}` : sandbox.state],
    ["isolation", sandbox.isolation],
    ["machine", formatMachine(sandbox)],
    ["kernels", sandbox.kernels.join(", ") || "-"],
    ["network", [sandbox.network.mode, ...sandbox.network.allow].join(" ")],
    ["metadata", formatPairs(sandbox.metadata)],
    ["created", `${formatTime(sandbox.created_at_unix)} by ${sandbox.created_by}, in ${formatMs(sandbox.fork_ms)}`],
    ["last used", formatTime(sandbox.last_active_unix)],
    ["expires", sandbox.expires_at_unix === null ? "never" : formatTime(sandbox.expires_at_unix)],
    ["idle limit", sandbox.idle_timeout_secs === null ? "none" : `${sandbox.idle_timeout_secs} s`],
    ["shares", sandbox.shares.map(({ source, target }) => `${source} at ${target}`).join(", ") || "-"],
    ["branches", String(sandbox.branch_count)],
    ["process", sandbox.pid === null ? "-" : String(sandbox.pid)],
    ["hostname", certificate.identity.hostname],
    ["machine id", certificate.identity.machine_id],
    ["boot id", certificate.identity.boot_id],
    ["clock", `at most ${certificate.clock_skew_ms} ms off`],
    [
      "randomness",
      [certificate.guest_rng, ...Object.entries(certificate.kernels).map(([name, kernel]) => `${name} ${kernel.state}`)].join(", "),
    ],
    ["memory", certificate.memory],
    ["disk", certificate.disk],
  ];
}
