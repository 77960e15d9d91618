// forkd image ls

import { Command } from "commander";
import { connect } from "../../daemon.ts";
import { formatBytes, printJson, printLine, printTable } from "../../output.ts";
import { shortId } from "./stored.ts";

import type { ImageInfo } from "forkd";
import type { Cli } from "../../cli.ts";

export function imageLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the images")
    .option("--json", "print JSON")
    .action(async () => {
      const forkd = await connect(cli);
      const images = await forkd.listImages({ signal: cli.signal });
      if (cli.json) printJson(images);
      else if (images.length === 0) printLine("There are no images. Make one with 'forkd image build', 'pull' or 'import'.");
      else
        printTable(images, [
          { title: "NAME", value: (image) => image.names.join(", ") || "-" },
          { title: "ID", value: (image) => shortId(image) },
          { title: "SIZE", value: (image) => formatBytes(image.bytes), align: "right" },
          { title: "CREATED", value: (image) => image.created_at.slice(0, 16).replace("T", " ") },
          { title: "SOURCE", value: sourceOf },
        ]);
    });
}

function sourceOf({ source }: ImageInfo): string {
  const { kind, suite, packages, reference, file } = source;
  switch (kind) {
    case "packages":
      return `debian ${String(suite)}: ${[packages].flat().join(", ") || "minimal"}`;
    case "oci":
      return String(reference);
    case "import":
      return String(file);
    case "pack":
      return "a pack";
  }
}
