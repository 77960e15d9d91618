// forkd snapshot info

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { formatMachine, formatTime } from "../../terminal/format.ts";
import { formatBytes, printFacts, printJson } from "../../terminal/output.ts";

import type { SnapshotDetails, SnapshotInfo } from "forkd";
import type { Cli } from "../../cli.ts";

export function snapshotInfoCommand(cli: Cli): Command {
  return build(cli, "snapshot-info");
}

export function snapshotInfoSubcommand(cli: Cli): Command {
  return build(cli, "info");
}

function build(cli: Cli, name: string): Command {
  return new Command(name)
    .description("print sizes and lineage of a snapshot")
    .argument("<tag>", "tag of the snapshot")
    .option("--json", "print JSON")
    .action(async (tag: string) => {
      const forkd = await connect(cli);
      const opts = { signal: cli.signal };
      const [info, details] = await Promise.all([forkd.getSnapshot(tag, opts), forkd.snapshotInfo(tag, opts)]);
      if (cli.json) printJson({ ...info, ...details });
      else printFacts(factsOf(info, details));
    });
}

function factsOf(info: SnapshotInfo, details: SnapshotDetails): [string, string][] {
  return [
    ["tag", details.tag],
    ["id", details.id],
    ["status", info.error ? `${info.status}: ${info.error}` : info.status],
    ["folder", details.dir],
    ["created", formatTime(details.created_at_unix)],
    ["image", info.image ?? "-"],
    ["machine", formatMachine(info)],
    ["processor", cpuLine(details)],
    ["kernels", info.kernels.join(", ") || "-"],
    ["memory", memoryLine(details)],
    ["device state", formatBytes(details.vmstate_bytes)],
    ["disk", details.disk_mib === null ? "none" : diskLine(details)],
    ["builds on", details.ancestors.join(" < ") || "nothing"],
    ["needed by", [...details.dependents, ...details.sandboxes].join(", ") || "nothing"],
    ["pool", String(info.pool)],
  ];
}

function cpuLine({ isolation, cpu, cpu_vendor: vendor }: SnapshotDetails): string {
  return isolation === "emulated" ? `${cpu}, emulated` : `${cpu}, with KVM${vendor === null ? "" : `, of ${vendor}`}`;
}

function memoryLine({ memory_physical_bytes: stored, memory_logical_bytes: all, hugepages }: SnapshotDetails): string {
  return `${formatBytes(stored)} stored of ${formatBytes(all)}${hugepages ? ", in huge pages of the host for its forks" : ""}`;
}

function diskLine(details: SnapshotDetails): string {
  const layers = details.disk_layers === 1 ? "1 layer" : `${details.disk_layers} layers`;
  return `${layers}, ${formatBytes(details.disk_physical_bytes)} stored, ${formatBytes(details.disk_own_bytes)} of it its own`;
}
