// QEMU's description of a disk's layers, as data.

import type { Layer } from "../../disk/layer.ts";
import { ForkdError } from "../../errors.ts";

/** A node of QEMU's block graph; its name is the layer's id */
export type BlockNode = Record<string, unknown>;

/** All layers of a disk, lowest first; with "write" the uppermost one takes writes */
export function stackNode(layers: readonly Layer[], mode: "read" | "write"): BlockNode {
  let node: BlockNode | null = null;
  for (const [at, layer] of layers.entries()) {
    node = layerNode(layer, mode === "write" && at === layers.length - 1 ? "write" : "read", node);
  }
  if (!node) throw new ForkdError("INTERNAL", "A disk has no layers.");
  return node;
}

/** @param below null: none; the name of a node; or the node itself */
export function layerNode(layer: Layer, mode: "read" | "write", below: BlockNode | string | null): BlockNode {
  return {
    driver: layer.format,
    "node-name": layer.id,
    "read-only": mode === "read",
    // a guest's flush need not reach the host's disk: after a power cut the VM is no more, and a snapshot is synced by itself
    cache: { direct: false, "no-flush": true },
    // what the guest frees, or fills with zeroes, is given back to the host
    discard: "unmap",
    ...(mode === "write" ? { "detect-zeroes": "unmap" } : {}),
    file: {
      driver: "file",
      "node-name": fileNodeOf(layer.id),
      filename: layer.path,
      // layers that are only read are shared by design, and the one that is written lies in a folder of nobody else
      locking: "off",
      cache: { direct: false, "no-flush": true },
      discard: "unmap",
    },
    // always given: a file's header never decides what lies below it
    ...(layer.format === "qcow2" ? { backing: below } : {}),
  };
}

export function fileNodeOf(id: string): string {
  return `${id}-file`;
}
