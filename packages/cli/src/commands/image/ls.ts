// forkd image ls

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { formatBytes, printJson, printLine, printTable } from "../../terminal/output.ts";
import { shortId } from "./stored.ts";

import type { ImageInfo } from "forkd";
import type { Cli } from "../../cli.ts";

export function imageLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the images")
    .option("-a, --all", "also those without a name, and the ids")
    .option("--json", "print JSON")
    .action(async (opts: { all?: boolean }) => {
      const forkd = await connect(cli);
      const found = await forkd.listImages({ signal: cli.signal });
      const images = opts.all ? found : found.filter(({ names }) => names.length > 0);
      if (cli.json) printJson(found);
      else if (images.length === 0) printLine("There are no images. Make one with 'forkd image build', 'pull' or 'import'.");
      else
        printTable(images, [
          { title: "NAME", value: (image) => image.names.join(", ") || "-", wraps: true },
          ...(opts.all ? [{ title: "ID", value: shortId }] : []),
          { title: "SIZE", value: (image) => formatBytes(image.bytes), align: "right" },
          { title: "CREATED", value: (image) => image.created_at.slice(0, 16).replace("T", " ") },
          { title: "SOURCE", value: sourceOf, wraps: true },
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
