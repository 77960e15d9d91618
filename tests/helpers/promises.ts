// Durability promises made while a store was recorded, and their check when a daemon starts after a power cut.

import assert from "node:assert/strict";
import { open, rm, stat, type FileHandle } from "node:fs/promises";
import { basename, join } from "node:path";
import { ForkdError, prepareHome, resolveHome } from "@forkd/runtime";
import { KeyStore } from "@forkd/runtime/pack/keys";
import { Uploads } from "../../packages/daemon/src/e2b/templates/uploads.ts";
import { Tokens } from "../../packages/daemon/src/store/tokens.ts";
import { isAll, rounds } from "./all.ts";
import { restarted, type Restarted } from "./restart.ts";

import type { Disk, Entry, Loss } from "./power-cut.ts";

/** The power is cut after each promise and after every EVERY-th change */
const EVERY = rounds(120, 11);
const LOSSES = ["nothing", "no-data", "all", "chance"] as const;

/** State that must survive a power cut from this point on, until a later promise about the same object */
export type Promised =
  /** usable under one of these tags; null: may have been removed; []: no tag refers to it */
  | { what: "snapshot"; id: string; tags: string[] | null }
  /** resumable or removed; null: either */
  | { what: "sandbox"; id: string; state: "suspended" | "gone" | null }
  | { what: "workspace"; name: string; state: "suspended" | "gone" | null }
  /** null: may be valid or not */
  | { what: "token"; token: string; works: boolean | null }
  | { what: "image"; name: string; isThere: boolean | null }
  /** a key for packs; null: may exist or not */
  | { what: "key"; name: string; isThere: boolean | null }
  /** file sent for a template step, with its content */
  | { what: "upload"; name: string; content: string }
  /** sizes of a snapshot's files when it was complete; valid from the beginning */
  | { what: "files"; id: string; sizes: Record<string, number> };

class Promises {
  readonly #now = new Map<string, Promised>();
  readonly sizes = new Map<string, Record<string, number>>();
  heard = 0;

  constructor(entries: readonly Entry[]) {
    for (const entry of entries) {
      const promised = entry.op === "say" ? (entry.what as Promised) : undefined;
      if (promised?.what === "files") this.sizes.set(promised.id, promised.sizes);
    }
  }

  get now(): Promised[] {
    return [...this.#now.values()];
  }

  /** Records a promise and returns whether it adds a guarantee */
  hear(promised: Promised): boolean {
    if (promised.what === "files") return false;
    const of = "id" in promised ? promised.id : "token" in promised ? promised.token : promised.name;
    this.#now.set(`${promised.what} ${of}`, promised);
    this.heard++;
    return !Object.values(promised).includes(null);
  }
}

type CheckWhole = (id: string) => Promise<void>;

type Recorded = {
  disk: Disk;
  entries: Entry[];
  /** folder for the replayed stores */
  dir: string;
  /** adds the parts of the store that were not recorded */
  complete?: (root: string) => Promise<void>;
};

/** Cuts the power at many points with different losses and checks each result with a starting daemon */
export async function replay({ disk, entries, dir, complete }: Recorded): Promise<{ cuts: number; promised: number }> {
  const promises = new Promises(entries);
  const root = join(dir, "cut");
  let cuts = 0;
  const cut = async (at: number, loss: Loss): Promise<void> => {
    await disk.write(root, loss);
    await complete?.(root);
    try {
      await checkPromises(root, promises);
    } catch (error) {
      const before = entries.slice(Math.max(0, at - 20), at + 1).map((entry) => JSON.stringify(entry).slice(0, 200));
      throw new Error(`a power cut (${loss}) at ${at}, after\n${before.join("\n")}`, { cause: error });
    }
    await rm(root, { recursive: true });
    cuts++;
  };
  using _ = await withoutSyncs();
  for (const [at, entry] of entries.entries()) {
    disk.apply(entry);
    const isPromise = entry.op === "say" && promises.hear(entry.what as Promised);
    if (isPromise) for (const loss of ["nothing", "no-data"] as const) await cut(at, loss);
    // Without unsynced data the result changes only after a sync, so this covers every prefix.
    else if (isAll && entry.op === "synced") await cut(at, "nothing");
    if (!isPromise && at % EVERY === 0) for (const loss of LOSSES) await cut(at, loss === "chance" ? at : loss);
  }
  return { cuts, promised: promises.heard };
}

/** Disables fsync during the start of the daemon: it does not matter here and would take most of the time */
async function withoutSyncs(): Promise<Disposable> {
  await using handle = await open("/");
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  const before = Object.getOwnPropertyDescriptor(prototype, "sync");
  assert.ok(before);
  Object.defineProperty(prototype, "sync", { ...before, value: async () => undefined });
  return { [Symbol.dispose]: () => Object.defineProperty(prototype, "sync", before) };
}

/** Starts on a store as a daemon does and throws if a promise is broken */
async function checkPromises(root: string, promises: Promises): Promise<void> {
  const home = await prepareHome(resolveHome({ FORKD_HOME: root, FORKD_RUN: join(root, "run") }));
  using store = await restarted(home, { isDurable: false });
  const tokens = new Tokens(store.core.db);
  const checkWhole = wholeness(store, promises);
  for (const [tag] of await store.snapshots.tags()) await refuseOrCheck(store, tag, checkWhole);
  for (const { manifest } of await store.snapshots.everything()) await checkWhole(manifest.id);
  const { sandboxes, workspaces } = store.core.tables;
  for (const { state, snapshot_id: id } of sandboxes.all()) if (state === "suspended") await checkWhole(id);
  for (const { state_id: id } of workspaces.all()) if (id !== null) await checkWhole(id);
  for (const promised of promises.now) await checkPromise(store, tokens, promised, checkWhole);
}

async function checkPromise(store: Restarted, tokens: Tokens, promised: Promised, checkWhole: CheckWhole): Promise<void> {
  const said = JSON.stringify(promised);
  const { sandboxes, workspaces } = store.core.tables;
  switch (promised.what) {
    case "snapshot": {
      if (promised.tags === null) return;
      const tags = [...(await store.snapshots.tags())].filter(([, id]) => id === promised.id).map(([tag]) => tag);
      if (promised.tags.length === 0) return assert.deepEqual(tags, [], said);
      assert.equal(tags.filter((tag) => promised.tags?.includes(tag)).length, 1, `${said}, and it has ${tags.join(", ") || "no tag"}`);
      return checkWhole(promised.id);
    }
    case "sandbox": {
      const row = sandboxes.get(promised.id);
      if (promised.state !== null) assert.equal(row?.state ?? "gone", promised.state, `${said}: ${row?.reason}`);
      return undefined;
    }
    case "workspace": {
      if (promised.state === null) return undefined;
      const [row] = workspaces.where("name", promised.name);
      if (promised.state === "gone") return assert.equal(row, undefined, said);
      assert.ok(row?.state_id, said);
      return checkWhole(row.state_id);
    }
    case "token":
      if (promised.works !== null) assert.equal(tokens.find(promised.token) !== null, promised.works, said);
      return undefined;
    case "image":
      if (promised.isThere !== null) assert.equal((await store.images.find(promised.name)) !== undefined, promised.isThere, said);
      return undefined;
    case "key": {
      const names = (await new KeyStore(store.core.home).list()).map(({ name }) => name);
      if (promised.isThere !== null) assert.equal(names.includes(promised.name), promised.isThere, said);
      return undefined;
    }
    case "upload": {
      const content = await new Uploads(join(store.core.home.cache, "e2b-files")).read("default", "template", promised.name);
      assert.equal(Buffer.concat(await Array.fromAsync(content)).toString(), promised.content, said);
      return undefined;
    }
    case "files":
      return undefined;
  }
}

/** A tag must refer to a complete snapshot or to one that is rejected */
async function refuseOrCheck(store: Restarted, tag: string, checkWhole: CheckWhole): Promise<void> {
  try {
    await checkWhole((await store.snapshots.get(tag)).manifest.id);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "SNAPSHOT_INVALID") throw error;
  }
}

/** Checks each snapshot together with its bases and its image */
function wholeness({ snapshots, images }: Restarted, { sizes }: Promises): CheckWhole {
  const known = new Set<string>();
  const checkWhole = async (id: string): Promise<void> => {
    if (known.has(id)) return;
    const { manifest, memory, deltas, deviceState, layers } = await snapshots.byId(id);
    const expected = sizes.get(id);
    for (const path of new Set([memory, ...deltas, deviceState, ...layers.map((layer) => layer.path)])) {
      const { size } = await stat(path);
      if (expected) assert.equal(size, expected[basename(path)], `${path} is not whole`);
    }
    if (!known.has(manifest.imageId)) await images.get(manifest.imageId);
    if (manifest.memory.kind === "delta") await checkWhole(manifest.memory.base);
    known.add(id).add(manifest.imageId);
  };
  return checkWhole;
}
