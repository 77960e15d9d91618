// The disk of a running VM: its layers are QEMU's block nodes.

import { LAYER_ID, type Layer } from "../../disk/layer.ts";
import type { DiskControl } from "../driver.ts";
import { fileNodeOf, layerNode } from "./block-node.ts";
import { DISK_DEVICE } from "./args.ts";

type Execute = (command: string, args?: Record<string, unknown>) => Promise<unknown>;

export class QemuDisk implements DiskControl {
  readonly #execute: Execute;

  constructor(execute: Execute) {
    this.#execute = execute;
  }

  async active(): Promise<string> {
    return (await this.#execute("qom-get", { path: `/machine/peripheral/${DISK_DEVICE}`, property: "drive" })) as string;
  }

  async known(): Promise<string[]> {
    const nodes = (await this.#execute("query-named-block-nodes", { flat: true })) as { "node-name": string }[];
    return nodes.map((node) => node["node-name"]).filter((name) => LAYER_ID.test(name));
  }

  async add(layer: Layer): Promise<void> {
    await this.#execute("blockdev-add", layerNode(layer, "write", null));
  }

  async freeze(active: string, next: string): Promise<void> {
    await this.#execute("blockdev-snapshot", { node: active, overlay: next });
  }

  async drop(id: string): Promise<void> {
    await this.#execute("blockdev-del", { "node-name": id });
  }

  async restack(active: Layer, onto: Layer): Promise<void> {
    await this.#execute("blockdev-add", layerNode(onto, "read", null));
    // options that are not repeated would fall back to their defaults; the file stays as it is
    const node = { ...layerNode(active, "write", onto.id), file: fileNodeOf(active.id) };
    try {
      await this.#execute("blockdev-reopen", { options: [node] });
    } catch (error) {
      await this.drop(onto.id);
      throw error;
    }
  }
}
