// Reads `docker save` archives: manifest.json with the paths of a configuration and of layers.

import { z } from "zod";
import { ForkdError } from "../errors.ts";
import { lazyStream, readMember } from "./archive-index.ts";
import type { ArchiveFiles, ImportedImage } from "./archive-index.ts";
import { OciConfig, parseDocument } from "../oci/schema.ts";
import { toImageConfig } from "./oci-config.ts";

const MAX_DOCUMENT = 8 * 1024 ** 2;

const DockerManifest = z.array(z.object({ Config: z.string(), Layers: z.array(z.string()).min(1).max(500) })).min(1);

/** undefined when the archive is something else; a root file system may have its own manifest.json */
export async function readDockerArchive(files: ArchiveFiles): Promise<ImportedImage | undefined> {
  const size = await files.size("manifest.json");
  if (size === undefined || size > MAX_DOCUMENT) return undefined;
  const document = DockerManifest.safeParse(parseJson(await readMember(files, "manifest.json", MAX_DOCUMENT)));
  if (!document.success) return undefined;
  const [image, ...others] = document.data;
  if (image === undefined) return undefined;
  if (others.length > 0) {
    throw new ForkdError("BAD_REQUEST", `Cannot import ${files.label}: it holds ${document.data.length} images.`, {
      hint: "Save one image at a time.",
    });
  }
  const oci = parseDocument(OciConfig, await readMember(files, image.Config, MAX_DOCUMENT), `the configuration in ${files.label}`);
  const config = toImageConfig(oci, image.Layers.length, files.label);
  for (const path of image.Layers) {
    if ((await files.size(path)) === undefined)
      throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: it holds no file ${JSON.stringify(path)}.`);
  }
  const layers = image.Layers.map((path, i) => ({
    label: `layer ${i + 1} of ${files.label}`,
    open: () => lazyStream(() => files.open(path)),
    diffId: oci.rootfs.diff_ids[i],
  }));
  return { format: "docker-archive", config, layers };
}

function parseJson(data: Buffer): unknown {
  try {
    return JSON.parse(data.toString("utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
