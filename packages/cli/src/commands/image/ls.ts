// forkd image ls

import { Command } from "commander";
import { formatBytes, printJson, printLine, printNote, printTable } from "../../output.ts";

import type { StoredImage } from "@forkd/daemon";
import type { Cli } from "../../cli.ts";

export function imageLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the images")
    .option("--json", "print JSON")
    .action(async () => {
      const { ImageStore, resolveHome } = await import("@forkd/daemon");
      const images = await new ImageStore(resolveHome()).list({ onInvalid: (error) => printNote(`forkd: ${error.message}`) });
      if (cli.json) printJson(images.map(describeImage));
      else if (images.length === 0) printLine("There are no images. Make one with 'forkd image build', 'pull' or 'import'.");
      else
        printTable(images, [
          { title: "NAME", value: (image) => image.names.join(", ") || "-" },
          { title: "ID", value: (image) => image.id.slice("sha256:".length).slice(0, 12) },
          { title: "SIZE", value: (image) => formatBytes(image.manifest.rootfs.bytes), align: "right" },
          { title: "CREATED", value: (image) => image.manifest.created_at.slice(0, 16).replace("T", " ") },
          { title: "SOURCE", value: sourceOf },
        ]);
    });
}

/** The JSON form of an image, the same in every command */
export function describeImage(image: StoredImage): object {
  return { ...image.manifest, names: image.names, path: image.rootfsPath };
}

function sourceOf({ manifest: { source } }: StoredImage): string {
  switch (source.kind) {
    case "packages":
      return `debian ${source.suite}: ${source.packages.join(", ") || "minimal"}`;
    case "oci":
      return source.reference;
    case "import":
      return source.file;
  }
}
