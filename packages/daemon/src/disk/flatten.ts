// Many layers become one.

import { link } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "../util/id.ts";
import { convertLayers, type ConvertHost } from "./convert.ts";
import { layerFile, type Layer } from "./layer.ts";
import { checkOverlay } from "./overlay.ts";

/** Writes what all layers together hold to a new one in a folder; one that is alone already is only linked */
export async function flattenLayers(layers: readonly Layer[], sizeMiB: number, dir: string, host: ConvertHost): Promise<Layer> {
  const [only, ...others] = layers;
  const names = { id: only && others.length === 0 ? only.id : newId("dk"), format: "raw" } as const;
  const flat = { ...names, path: join(dir, layerFile(names)) };
  if (only && others.length === 0) {
    await link(only.path, flat.path);
    return flat;
  }
  // what VMMs have written is not trusted
  for (const { path } of others) await checkOverlay(path, sizeMiB);
  await convertLayers(layers, sizeMiB, flat.path, host);
  return flat;
}
