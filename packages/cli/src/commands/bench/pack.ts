// forkd bench pack

import { Command } from "commander";
import { formatBytes, printTable } from "../../terminal/output.ts";
import { compressionLevel } from "../../options/values.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger } from "./report.ts";

import type { PackReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { memoryMib: number; level: number; rounds: number };

export function benchPackCommand(cli: Cli): Command {
  return new Command("pack")
    .description("speed and compression of a pack, compared with the zstd command on the same bytes")
    .option("--memory-mib <count>", "memory of the snapshot", positiveInteger, 1024)
    .option("--level <n>", "zstd level", compressionLevel, 3)
    .option("--rounds <count>", "measurements of each", positiveInteger, 3)
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchPack } = await loadBenchmarks();
      await measure(cli, async (given) => benchPack({ ...opts, ...given }), printFigures);
    });
}

function printFigures({ bytes, memory_bytes: memoryBytes, pack_ms: packMs, zstd_ms: zstdMs, memory }: PackReport): void {
  const speed = (ms: number): string => `${(bytes / 1024 / 1024 / (ms / 1000)).toFixed(0)} MiB/s`;
  const rows: [string, string, string][] = [
    [`speed, ${formatBytes(bytes)} on disk`, speed(packMs), speed(zstdMs)],
    [`memory, ${formatBytes(memoryBytes)} on disk`, formatBytes(memory.pack_bytes), formatBytes(memory.zstd_bytes)],
  ];
  printTable(rows, [
    { title: "WHAT", value: ([what]) => what },
    { title: "PACK", value: ([, own]) => own, align: "right" },
    { title: "ZSTD", value: ([, , zstd]) => zstd, align: "right" },
  ]);
}
