// Build cache: one snapshot per layer, and the finished snapshot under its tag.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime/errors";
import { newId } from "@forkd/runtime/util/id";
import { BUILD_KEY, isLayer, LAYER_KEY, RECIPE_KEY, STEP_KEY } from "./layer.ts";
import type { SnapshotInfo } from "../api/snapshot.ts";
import type { Caller } from "../service/caller.ts";
import type { Manager } from "../service/manager.ts";

const MAX_TAG = 64;
const SHORT = 12;
const MAX_STEP = 200;
const BUSY_MS = 200;

export type CacheServices = {
  snapshots: Pick<Manager["snapshots"], "get" | "list" | "remove" | "publish" | "update">;
  branches: Pick<Manager["branches"], "branch">;
};

type Keyed = { key: string; title: string };
/** Labels of a finished snapshot */
type Published = { key: string; metadata?: Record<string, string>; description?: string };

export class BuildCache {
  readonly #services: CacheServices;
  readonly #caller: Caller;
  readonly #recipe: string;
  readonly tag: string;

  /** `caller` must not be cancelled with the build: it is also used for the clean-up */
  constructor(services: CacheServices, { recipe, tag, caller }: { recipe: string; tag: string; caller: Caller }) {
    this.#services = services;
    this.#caller = caller;
    this.#recipe = recipe;
    this.tag = tag;
  }

  /** The finished snapshot, if its key matches */
  async finished(key: string): Promise<SnapshotInfo | undefined> {
    const found = await this.#find(this.tag);
    return found && isUsable(found) && found.metadata[LAYER_KEY] === key && !isLayer(found) ? found : undefined;
  }

  /** The last of these layers that is cached, by a build of any recipe or template */
  async lastDone(layers: readonly Keyed[]): Promise<{ index: number; snapshot: SnapshotInfo } | undefined> {
    const { items } = await this.#services.snapshots.list({ status: "ready" }, this.#caller);
    const byKey = new Map(items.filter((each) => isLayer(each) && isUsable(each)).map((each) => [each.metadata[LAYER_KEY], each]));
    const index = layers.findLastIndex(({ key }) => byKey.has(key));
    const snapshot = byKey.get(layers[index]?.key);
    return snapshot && { index, snapshot };
  }

  layerTag({ key }: Keyed): string {
    return `build-${this.tag.slice(0, MAX_TAG - "build-".length - 1 - SHORT)}-${key.slice(0, SHORT)}`;
  }

  layerMetadata({ key, title }: Keyed): Record<string, string> {
    return { ...this.buildMetadata, [LAYER_KEY]: key, [STEP_KEY]: title.slice(0, MAX_STEP) };
  }

  /** Metadata of all temporary objects of this build */
  get buildMetadata(): Record<string, string> {
    return { [RECIPE_KEY]: this.#recipe, [BUILD_KEY]: this.tag };
  }

  /** Saves the sandbox as the snapshot of a layer */
  async keep(sandbox: string, layer: Keyed, signal: AbortSignal): Promise<SnapshotInfo> {
    await this.drop(this.layerTag(layer));
    return this.#branch(sandbox, this.layerTag(layer), this.layerMetadata(layer), signal);
  }

  /** Temporary snapshot for `use`; removed afterwards unless `use` publishes it */
  async candidate<T>(sandbox: string, signal: AbortSignal, use: (tag: string) => Promise<T>): Promise<T> {
    const tag = newId("br");
    try {
      await this.#branch(sandbox, tag, this.buildMetadata, signal);
      return await use(tag);
    } finally {
      await this.drop(tag);
    }
  }

  /** Moves the tag to a candidate atomically; the data of the previous snapshot is kept while something needs it */
  async publish(candidate: string, { key, metadata, description }: Published): Promise<SnapshotInfo> {
    const own = { ...metadata, [RECIPE_KEY]: this.#recipe, [LAYER_KEY]: key };
    return this.#services.snapshots.publish(candidate, { tag: this.tag, metadata: own, description }, this.#caller);
  }

  /** An unchanged snapshot with the recipe's description, which is not part of its key */
  async described(snapshot: SnapshotInfo, description: string | undefined): Promise<SnapshotInfo> {
    if (description === undefined || snapshot.description === description) return snapshot;
    return this.#services.snapshots.update(this.tag, { description }, this.#caller);
  }

  /** Removes obsolete layers of this tag, and candidates that a crashed daemon left */
  async prune(layers: readonly Keyed[]): Promise<void> {
    const keys = new Set(layers.map(({ key }) => key));
    for (const { tag, metadata } of await this.#ofTag()) {
      const isNeeded = metadata[STEP_KEY] !== undefined && keys.has(metadata[LAYER_KEY] ?? "");
      if (!isNeeded) await this.drop(tag);
    }
  }

  async drop(tag: string): Promise<void> {
    try {
      await this.#services.snapshots.remove(tag, { force: true, cascade: undefined }, this.#caller);
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") throw error;
    }
  }

  async #ofTag(): Promise<SnapshotInfo[]> {
    const { items } = await this.#services.snapshots.list({ metadata: [`${BUILD_KEY}=${this.tag}`] }, this.#caller);
    return items.filter(({ status }) => status !== "writing");
  }

  /** Retries while branches of other clients use up the concurrency limit */
  async #branch(sandbox: string, tag: string, metadata: Record<string, string>, signal: AbortSignal): Promise<SnapshotInfo> {
    for (;;) {
      try {
        const request = { tag, metadata, hold: true, wait: true };
        return (await this.#services.branches.branch(sandbox, request, { ...this.#caller, signal })).info;
      } catch (error) {
        if (!(error instanceof ForkdError) || error.code !== "BUSY") throw error;
        await sleep(BUSY_MS, undefined, { signal });
      }
    }
  }

  async #find(tag: string): Promise<SnapshotInfo | undefined> {
    try {
      return await this.#services.snapshots.get(tag, this.#caller);
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return undefined;
      throw error;
    }
  }
}

function isUsable({ status, bootable }: SnapshotInfo): boolean {
  return status === "ready" && bootable;
}
