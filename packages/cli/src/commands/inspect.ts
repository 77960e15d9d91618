// forkd inspect

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatMachine, formatMs, formatPairs, formatTime } from "../terminal/format.ts";
import { printFacts, printJson } from "../terminal/output.ts";

import type { SandboxInfo } from "forkd";
import type { Cli } from "../cli.ts";

export function inspectCommand(cli: Cli): Command {
  return new Command("inspect")
    .description("print everything about one sandbox, with the certificate of its fork")
    .argument("<id>", "id or name")
    .option("--json", "print JSON")
    .action(async (id: string) => {
      const forkd = await connect(cli);
      const sandbox = await forkd.getSandbox(id, { signal: cli.signal });
      if (cli.json) printJson(sandbox);
      else printFacts(factsOf(sandbox));
    });
}

function formatDrift({ clock_drift_ppm: drift, clock_measured: where }: SandboxInfo["certificate"]): string {
  return drift === null ? "" : `, ${(Math.abs(drift) / 10_000).toFixed(2)} % too ${drift < 0 ? "slow" : "fast"} (measured in the ${where})`;
}

function factsOf(sandbox: SandboxInfo): [string, string][] {
  const { certificate } = sandbox;
  return [
    ["id", sandbox.id],
    ["name", sandbox.name ?? "-"],
    ["snapshot", `${sandbox.snapshot_tag} (${sandbox.snapshot_id})`],
    ["state", sandbox.reason ? `${sandbox.state}: ${sandbox.reason}` : sandbox.state],
    ["isolation", sandbox.isolation === "kvm" ? "kvm" : "emulated: by the engine's translator, which is not a security boundary"],
    ["confinement", confinementOf(sandbox)],
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
    ["clock", `at most ${certificate.clock_skew_ms} ms off${formatDrift(certificate)}`],
    ["randomness", formatRandomness(certificate)],
    ["memory", certificate.memory],
    ["disk", certificate.disk],
  ];
}

function formatRandomness({ guest_rng, kernels, not_reseeded, ran_before_ms }: SandboxInfo["certificate"]): string {
  const states = Object.entries(kernels).map(([name, kernel]) => `${name} ${kernel.state}`);
  const shared = not_reseeded.map((name) => `not ${name}`);
  const late = ran_before_ms ? [`processes ran ${formatMs(ran_before_ms)} before that`] : [];
  return [guest_rng, ...states, ...shared, ...late].join(", ");
}

function confinementOf({ confinement }: SandboxInfo): string {
  return confinement === "none" ? "none: its VMM can do what the daemon's user can" : confinement;
}
