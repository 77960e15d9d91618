// forkd image inspect

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { formatBytes, printFacts, printJson } from "../../terminal/output.ts";

import type { Cli } from "../../cli.ts";

export function imageInspectCommand(cli: Cli): Command {
  return new Command("inspect")
    .description("print everything about one image")
    .argument("<name>", "name or id")
    .option("--json", "print JSON")
    .action(async (name: string) => {
      const forkd = await connect(cli);
      const image = await forkd.getImage(name, { signal: cli.signal });
      if (cli.json) {
        printJson(image);
        return;
      }
      const { config } = image;
      printFacts([
        ["id", image.id],
        ["names", image.names.join(", ") || "-"],
        ["created", image.created_at],
        ["size", formatBytes(image.bytes)],
        ["source", JSON.stringify(image.source)],
        ["user", config.user || "root"],
        ["folder", config.cwd],
        ["command", JSON.stringify([...config.entrypoint, ...config.cmd])],
        ...Object.entries(config.env).map(([key, value]): [string, string] => ["env", JSON.stringify(`${key}=${value}`)]),
      ]);
    });
}
