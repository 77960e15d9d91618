// qemu-img on layers that VMMs have written, with the confinement of a VMM: a layer's header can name any file of the
// host.

import { link, open } from "node:fs/promises";
import { join } from "node:path";
import { diskFailure, layerFile, type Layer } from "../../disk/layer.ts";
import { checkOverlay } from "../../disk/overlay.ts";
import { ForkdError } from "../../errors.ts";
import { startConfined } from "../../host/confined.ts";
import { newId } from "../../util/id.ts";
import { stackNode } from "./block-node.ts";

const MIB = 1024 * 1024;
export const DISK_TOOL = "qemu-img";
export const DISK_TOOL_PACKAGE = "qemu-utils";

/** Confinement of VMMs on this host: qemu-img is never less confined */
export type ConvertHost = { confinement: "namespaces" | "none" };

/** Writes the merged content of all layers to a new file */
export async function convertLayers(layers: readonly Layer[], sizeMiB: number, to: string, host: ConvertHost): Promise<void> {
  {
    await using file = await open(to, "wx", 0o600);
    await file.truncate(sizeMiB * MIB);
  }
  const source = `json:${JSON.stringify(stackNode(layers))}`;
  try {
    const child = await startConfined([DISK_TOOL, "convert", "-n", "--target-is-zero", "-O", "raw", source, to], {
      read: layers.map(({ path }) => path),
      write: [to],
      maxFileBytes: sizeMiB * MIB,
      confinement: host.confinement === "namespaces" ? "required" : "preferred",
    });
    child.stdin.end();
    child.stdout.resume();
    await child.done;
  } catch (error) {
    if (error instanceof ForkdError && error.code === "HOST_TOOL_MISSING")
      throw new ForkdError(error.code, error.message, { hint: `Install it: sudo apt-get install ${DISK_TOOL_PACKAGE}`, cause: error });
    throw diskFailure(error);
  }
}

/** Writes the merged content of all layers to a new layer in a folder; a single layer is hard-linked */
export async function flattenLayers(layers: readonly Layer[], sizeMiB: number, dir: string, host: ConvertHost): Promise<Layer> {
  const [only, ...others] = layers;
  const names = { id: only && others.length === 0 ? only.id : newId("dk"), format: "raw" } as const;
  const flat = { ...names, path: join(dir, layerFile(names)) };
  if (only && others.length === 0) {
    await link(only.path, flat.path);
    return flat;
  }
  // a VMM wrote these headers, so they are not trusted
  for (const { path } of others) await checkOverlay(path, sizeMiB);
  await convertLayers(layers, sizeMiB, flat.path, host);
  return flat;
}
