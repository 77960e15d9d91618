// Fuzz targets by name.

import { join } from "node:path";
import { ROOT } from "./target.ts";

/** Folder of failing inputs, by target */
export const FOUND: string = join(ROOT, "dist", "fuzz");

const TARGETS = [
  "agent-frames",
  "dns",
  "guest-replies",
  "multipart",
  "pack-manifest",
  "pack-pages",
  "qmp",
  "share-questions",
  "tar",
] as const;

/** Target name → module that exports the target */
export const targets: ReadonlyMap<string, string> = new Map(
  TARGETS.map((name) => [name, join(import.meta.dirname, "targets", `${name}.ts`)]),
);
