// The disk of a running VM: its layers are QEMU's block nodes.

import * as z from "zod";
import { LAYER_ID, type Layer } from "../../disk/layer.ts";
import type { DiskControl } from "../driver.ts";
import { fileNode, fileNodeOf, layerNode } from "./block-node.ts";
import { DISK_DEVICE } from "./args.ts";

type Execute = <T extends z.ZodType>(command: string, schema: T, args?: Record<string, unknown>) => Promise<z.output<T>>;

const nodesReply = z.array(z.object({ "node-name": z.string() }));

/** Files of a VMM that opens none by path */
export type DiskFiles = {
  /** path at which the VMM can open the layer once */
  pass(layer: Layer, mode: "read" | "write"): Promise<string>;
  seal(active: Layer): Promise<void>;
};

export class QemuDisk implements DiskControl {
  readonly #execute: Execute;
  /** null: the VMM opens layers by their paths */
  readonly #files: DiskFiles | null;

  constructor(execute: Execute, files: DiskFiles | null) {
    this.#execute = execute;
    this.#files = files;
  }

  async active(): Promise<string> {
    return this.#execute("qom-get", z.string(), { path: `/machine/peripheral/${DISK_DEVICE}`, property: "drive" });
  }

  async known(): Promise<string[]> {
    return (await this.#nodes()).filter((name) => LAYER_ID.test(name));
  }

  async add(layer: Layer): Promise<void> {
    await this.#open(layer, "write");
  }

  async freeze(active: string, next: string): Promise<void> {
    await this.#execute("blockdev-snapshot", z.unknown(), { node: active, overlay: next });
  }

  async seal(active: Layer): Promise<void> {
    await this.#files?.seal(active);
  }

  async drop(id: string): Promise<void> {
    await this.#remove(id);
    // QEMU removes a nested one by itself
    if ((await this.#nodes()).includes(fileNodeOf(id))) await this.#remove(fileNodeOf(id));
  }

  async restack(active: Layer, onto: Layer): Promise<void> {
    await this.#open(onto, "read");
    try {
      // options that are not repeated would be reset to their defaults
      await this.#execute("blockdev-reopen", z.unknown(), { options: [layerNode(active, "write", onto.id)] });
    } catch (error) {
      await this.drop(onto.id);
      throw error;
    }
  }

  async #open(layer: Layer, mode: "read" | "write"): Promise<void> {
    const path = (await this.#files?.pass(layer, mode)) ?? layer.path;
    await this.#execute("blockdev-add", z.unknown(), fileNode({ ...layer, path }, mode));
    try {
      await this.#execute("blockdev-add", z.unknown(), layerNode(layer, mode, null));
    } catch (error) {
      await this.#remove(fileNodeOf(layer.id));
      throw error;
    }
  }

  async #nodes(): Promise<string[]> {
    const nodes = await this.#execute("query-named-block-nodes", nodesReply, { flat: true });
    return nodes.map((node) => node["node-name"]);
  }

  async #remove(node: string): Promise<void> {
    await this.#execute("blockdev-del", z.unknown(), { "node-name": node });
  }
}
