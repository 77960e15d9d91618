// forkd image rm

import { Command } from "commander";
import { printJson, printLine } from "../../output.ts";

import type { Cli } from "../../cli.ts";

export function imageRmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("remove names, and the data with the last name")
    .argument("<names...>", "names or ids")
    .option("--json", "print JSON")
    .action(async (names: string[]) => {
      const { ImageStore, resolveHome, SnapshotStore } = await import("@forkd/daemon");
      const home = resolveHome();
      const images = new ImageStore(home);
      const needed = new Set((await new SnapshotStore(home).list()).map((snapshot) => snapshot.manifest.imageId));
      const removed = [];
      for (const name of names) {
        cli.signal.throwIfAborted();
        const result = await images.remove(name, { inUse: (id) => needed.has(id) });
        removed.push(result);
        if (!cli.json) printLine(result.deleted ? `Removed ${name} and its data.` : `Removed the name ${name}; the data has other names.`);
      }
      if (cli.json) printJson(removed);
    });
}
