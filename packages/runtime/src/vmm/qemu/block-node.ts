// QEMU's block nodes for the layers of a disk, as data.

import type { Layer } from "../../disk/layer.ts";
import { ForkdError } from "../../errors.ts";

/** A node of QEMU's block graph; its name is the layer's id */
export type BlockNode = Record<string, unknown>;

/** Stack of all layers for reading, lowest first */
export function stackNode(layers: readonly Layer[]): BlockNode {
  let node: BlockNode | null = null;
  for (const layer of layers) node = { ...layerNode(layer, "read", node), file: fileNode(layer) };
  if (!node) throw new ForkdError("INTERNAL", "A disk has no layers.");
  return node;
}

/** The nodes of a disk, in the order in which QEMU opens them. The last one is the disk, whose active layer is writable */
export function diskNodes(below: readonly Layer[], active: Layer): [file: BlockNode, disk: BlockNode] {
  return [fileNode(active, "write"), layerNode(active, "write", below.length === 0 ? null : stackNode(below))];
}

/**
 * The node of a layer, on top of its file's. The file's node is added separately if the layer is ever written: QEMU
 * would reopen a nested one together with the layer, and QEMU 7.2 opens it again by its name after that. At this name
 * may be another layer by then.
 * @param below null: no backing node; a node's name; or the node itself
 */
export function layerNode(layer: Layer, mode: "read" | "write", below: BlockNode | string | null): BlockNode {
  return {
    driver: layer.format,
    "node-name": layer.id,
    "read-only": mode === "read",
    // A guest's flush need not reach the host's disk: a power cut ends the VM, and snapshots are synced separately.
    cache: { direct: false, "no-flush": true },
    // returns blocks to the host that the guest frees or fills with zeroes
    discard: "unmap",
    ...(mode === "write" ? { "detect-zeroes": "unmap" } : {}),
    file: fileNodeOf(layer.id),
    // always explicit: otherwise the file's header, which a VMM can write, selects the backing file
    ...(layer.format === "qcow2" ? { backing: below } : {}),
  };
}

/** The node of a layer's file; without `mode` it has the mode of the layer that contains it */
export function fileNode({ id, path }: Layer, mode?: "read" | "write"): BlockNode {
  return {
    driver: "file",
    "node-name": fileNodeOf(id),
    filename: path,
    ...(mode === undefined ? {} : { "read-only": mode === "read" }),
    // read-only layers are shared on purpose, and the folder of the writable one belongs to this VM
    locking: "off",
    cache: { direct: false, "no-flush": true },
    discard: "unmap",
  };
}

export function fileNodeOf(id: string): string {
  return `${id}-file`;
}
