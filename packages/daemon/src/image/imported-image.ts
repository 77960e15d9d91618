// What an archive to import turned out to hold.

import type { Layer } from "./layers.ts";
import type { ImageConfig } from "./manifest.ts";

export type ImportedImage = { format: "docker-archive" | "oci-layout" | "rootfs"; config: ImageConfig; layers: Layer[] };
