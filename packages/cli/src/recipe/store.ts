// The snapshots of builds: one after each step, which the next build goes on from, and the finished one under its tag.

import { ABORTABLE } from "../daemon.ts";
import { codeOf } from "../errors.ts";
import { removed, temporaryName } from "../temporary.ts";
import { BUILD_KEY, isLayer, LAYER_KEY, RECIPE_KEY, STEP_KEY } from "./layer.ts";

import type { Controller, SnapshotInfo } from "forkd";
import type { Cli } from "../cli.ts";
import type { Layer } from "./plan.ts";

const MAX_TAG = 64;
const SHORT = 12;
/** What a build whose command was killed had almost finished goes after so long */
const CANDIDATE_SECS = 3600;
const PRUNE_MS = 10_000;

export class BuildStore {
  readonly #cli: Cli;
  readonly #forkd: Controller;
  readonly #recipe: string;
  readonly tag: string;

  constructor(cli: Cli, forkd: Controller, recipe: string, tag: string) {
    this.#cli = cli;
    this.#forkd = forkd;
    this.#recipe = recipe;
    this.tag = tag;
  }

  /** The finished snapshot, when it follows from this key */
  async finished(key: string): Promise<SnapshotInfo | undefined> {
    const there = await this.#find(this.tag);
    return there && isUsable(there) && there.metadata[LAYER_KEY] === key && !isLayer(there) ? there : undefined;
  }

  /** The last layer that was done before, by any build of the recipe */
  async lastDone(layers: readonly Layer[]): Promise<{ index: number; snapshot: SnapshotInfo } | undefined> {
    const all = await this.#forkd.listSnapshots({ metadata: { [RECIPE_KEY]: this.#recipe }, signal: this.#cli.signal });
    const byKey = new Map(all.filter((each) => isLayer(each) && isUsable(each)).map((each) => [each.metadata[LAYER_KEY], each]));
    const index = layers.findLastIndex(({ key }) => byKey.has(key));
    const snapshot = byKey.get(layers[index]?.key);
    return snapshot && { index, snapshot };
  }

  layerTag(layer: Layer): string {
    return `build-${this.tag.slice(0, MAX_TAG - "build-".length - 1 - SHORT)}-${layer.key.slice(0, SHORT)}`;
  }

  layerMetadata(layer: Layer): Record<string, string> {
    return { ...this.#own(layer.key), [BUILD_KEY]: this.tag, [STEP_KEY]: layer.title };
  }

  /** Keeps a sandbox as it is after a layer */
  async keep(sandbox: string, layer: Layer): Promise<void> {
    await this.drop(this.layerTag(layer));
    const metadata = this.layerMetadata(layer);
    try {
      await this.#forkd.branchSandbox(sandbox, { tag: this.layerTag(layer), metadata, ...ABORTABLE, signal: this.#cli.signal });
    } catch (error) {
      // another build of the same was faster: its snapshot is as good
      if (codeOf(error) !== "EXISTS") throw error;
    }
  }

  /** A snapshot under a made-up tag for as long as `use` takes, which may publish it */
  async candidate<T>(sandbox: string, use: (tag: string) => Promise<T>): Promise<T> {
    const tag = temporaryName("build");
    const metadata = { ...this.#own(""), [BUILD_KEY]: this.tag };
    try {
      await this.#forkd.branchSandbox(sandbox, { tag, metadata, ...ABORTABLE, signal: this.#cli.signal });
      return await use(tag);
    } finally {
      await this.drop(tag);
    }
  }

  /** Gives a candidate the tag. Whoever has it loses it in the same moment, and stays as long as something needs it */
  async publish(candidate: string, key: string): Promise<SnapshotInfo> {
    this.#cli.signal.throwIfAborted();
    const before = await this.#find(this.tag);
    const old = temporaryName("old");
    // from here on without the signal: halfway there would be no snapshot of that tag
    if (before) await this.#forkd.updateSnapshot(this.tag, { tag: old });
    try {
      const pool = before !== undefined && before.pool > 0 ? { pool: before.pool } : {};
      const made = await this.#forkd.updateSnapshot(candidate, { tag: this.tag, metadata: this.#own(key), ...pool });
      if (before) await this.drop(old);
      return made;
    } catch (error) {
      if (before) await this.#forkd.updateSnapshot(old, { tag: this.tag });
      throw error;
    }
  }

  /** Removes what builds for this tag kept and this one has no use for */
  async prune(layers: readonly Layer[]): Promise<void> {
    const signal = AbortSignal.timeout(PRUNE_MS);
    const keys = new Set(layers.map(({ key }) => key));
    const all = await this.#forkd.listSnapshots({ metadata: { [BUILD_KEY]: this.tag }, signal });
    for (const { tag, metadata, created_at_unix: made } of all) {
      // one without a step is the candidate of a build that may be under way elsewhere, unless it is old
      const isLeft = metadata[STEP_KEY] === undefined ? Date.now() / 1000 - made > CANDIDATE_SECS : !keys.has(metadata[LAYER_KEY] ?? "");
      if (isLeft) await this.drop(tag);
    }
  }

  async drop(tag: string): Promise<void> {
    await removed(async (signal) => this.#forkd.deleteSnapshot(tag, { force: true, signal }));
  }

  #own(key: string): Record<string, string> {
    return { [RECIPE_KEY]: this.#recipe, [LAYER_KEY]: key };
  }

  async #find(tag: string): Promise<SnapshotInfo | undefined> {
    try {
      return await this.#forkd.getSnapshot(tag, { signal: this.#cli.signal });
    } catch (error) {
      if (codeOf(error) === "NOT_FOUND") return undefined;
      throw error;
    }
  }
}

function isUsable({ status, bootable }: SnapshotInfo): boolean {
  return status === "ready" && bootable;
}
