// Files that a garbage collection removed, or would remove.

import { formatBytes, printJson, printLine, printTable } from "./output.ts";

import type { GarbageCollected } from "forkd";
import type { Cli } from "../cli.ts";

export function printGarbage(cli: Cli, result: GarbageCollected): void {
  if (cli.json) {
    printJson(result);
    return;
  }
  if (result.removed.length === 0) {
    printLine("There is nothing to remove.");
    return;
  }
  printTable(result.removed, [
    { title: result.dry_run ? "WOULD GO" : "REMOVED", value: (item) => item.kind },
    { title: "SIZE", value: (item) => formatBytes(item.bytes), align: "right" },
    { title: "NAME", value: (item) => item.name, wraps: true },
  ]);
  printLine();
  printLine(`${result.dry_run ? "Would free" : "Freed"} ${formatBytes(result.bytes)}.`);
}
