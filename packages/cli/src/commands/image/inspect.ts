// forkd image inspect

import { Command } from "commander";
import { formatBytes, printJson, printLine } from "../../output.ts";
import { describeImage } from "./ls.ts";

import type { Cli } from "../../cli.ts";

export function imageInspectCommand(cli: Cli): Command {
  return new Command("inspect")
    .description("print everything about one image")
    .argument("<name>", "name or id")
    .option("--json", "print JSON")
    .action(async (name: string) => {
      const { ImageStore, resolveHome } = await import("@forkd/daemon");
      const image = await new ImageStore(resolveHome()).get(name);
      if (cli.json) {
        printJson(describeImage(image));
        return;
      }
      const { manifest } = image;
      const lines: [string, string][] = [
        ["id", image.id],
        ["names", image.names.join(", ") || "-"],
        ["created", manifest.created_at],
        ["size", formatBytes(manifest.rootfs.bytes)],
        ["path", image.rootfsPath],
        ["source", JSON.stringify(manifest.source)],
        ["user", manifest.config.user || "root"],
        ["folder", manifest.config.cwd],
        ["command", JSON.stringify([...manifest.config.entrypoint, ...manifest.config.cmd])],
        ...Object.entries(manifest.config.env).map(([key, value]): [string, string] => ["env", JSON.stringify(`${key}=${value}`)]),
      ];
      for (const [title, value] of lines) printLine(`${title.padEnd(9)}${value}`);
    });
}
