// Snapshots: made, listed, renamed, removed.

import type { CreateSnapshot, DeleteSnapshot, ListSnapshots, SnapshotDetails, SnapshotInfo, UpdateSnapshot } from "../api/snapshot.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { WarmUp } from "../sandbox/boot.ts";
import type { Received } from "../pack/receive.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { Caller } from "./caller.ts";
import { nowUnix, plumbingWarnings, type Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";
import { policyOf } from "./network-policy.ts";
import { hasMetadata, pageOf, type Page } from "./paging.ts";
import { snapshotDetails, snapshotInfo, unfinishedInfo, type ViewContext } from "./snapshot-view.ts";
import type { SnapshotRow } from "../store/tables.ts";

const DEFAULT_MEMORY_MIB = 512;
const SYNC_AFTER_MS = 2000;
const PLUMBING = ["kernel", "rootfs", "rw", "tap", "boot_wait_secs"];

export class Snapshots {
  readonly #core: Core;
  readonly #lineage: Lineage;
  /** renames and removals one after the other: each must find the tags as the one before left them */
  readonly #naming = new Semaphore(1);

  constructor(core: Core, lineage: Lineage) {
    this.#core = core;
    this.#lineage = lineage;
  }

  async list(query: ListSnapshots): Promise<Page<SnapshotInfo>> {
    const { tables, runtime, log } = this.#core;
    const context = await this.#viewContext();
    const rows = new Map(tables.snapshots.all().map((row) => [row.id, row]));
    const onInvalid = (error: ForkdError): void => log.warn({ err: error }, "a snapshot cannot be read");
    const ready = (await runtime.snapshots.list({ onInvalid })).map((snapshot) =>
      snapshotInfo(context, snapshot, rows.get(snapshot.manifest.id)),
    );
    const done = new Set(ready.map(({ id }) => id));
    const unfinished = [...rows.values()].filter((row) => row.status !== "ready" && !done.has(row.id)).map(unfinishedInfo);
    const wanted = [...ready, ...unfinished]
      .filter((info) => query.status === undefined || info.status === query.status)
      .filter((info) => hasMetadata(info.metadata, query.metadata))
      .toSorted((a, b) => (a.tag < b.tag ? -1 : 1));
    return pageOf(wanted, (info) => info.tag, query);
  }

  async get(tag: string): Promise<SnapshotInfo> {
    const unfinished = this.#unfinished(tag);
    if (unfinished) return unfinishedInfo(unfinished);
    return this.#info(await this.#core.runtime.snapshots.get(tag));
  }

  async details(tag: string): Promise<SnapshotDetails> {
    const snapshot = await this.usable(tag);
    return snapshotDetails(snapshot, await this.#lineage.of(snapshot));
  }

  /** One that can be forked: throws SNAPSHOT_NOT_READY while it is being written and after it failed */
  async usable(tag: string): Promise<Snapshot> {
    const unfinished = this.#unfinished(tag);
    if (unfinished?.status === "writing") throw new ForkdError("SNAPSHOT_NOT_READY", `Snapshot ${tag} is still being written.`);
    if (unfinished) throw new ForkdError("SNAPSHOT_NOT_READY", `Snapshot ${tag} failed: ${unfinished.error}`);
    return this.#core.runtime.snapshots.get(tag);
  }

  async create(request: CreateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    const { runtime, settings } = this.#core;
    const image = request.image ?? settings.defaultImage;
    const warnings = plumbingWarnings(request, PLUMBING);
    const { memory_mib: memoryMiB = DEFAULT_MEMORY_MIB, vcpus = 1 } = request;
    // looked up before anything is written down: a wrong name is no failed snapshot
    await runtime.images.get(image);
    const machine = { memory_mib: memoryMiB, vcpus, disk_mib: request.disk_mib ?? null };
    const row = this.newRow({ tag: request.tag, image, ...machine, metadata: request.metadata ?? {}, warnings }, caller);
    return this.writing(row, caller, async () => {
      const { snapshot } = await runtime.createSnapshot({
        tag: request.tag,
        id: row.id,
        image,
        memoryMiB,
        vcpus,
        diskMiB: request.disk_mib,
        warmUp: warmUpOf(request),
        env: request.env,
        network: request.network && policyOf(request.network, caller, runtime.network),
        progress: caller.progress,
        signal: caller.signal,
      });
      return { snapshot, changes: {}, status: 201 };
    });
  }

  async update(tag: string, request: UpdateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    return this.#naming.run(async () => this.#update(tag, request, caller));
  }

  async #update(tag: string, request: UpdateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    const { runtime, tables, events, db } = this.#core;
    let snapshot = await this.usable(tag);
    const { id } = snapshot.manifest;
    // found by its id, it would keep the tag it has beside the new one
    if ((await runtime.snapshots.tagged(tag)) !== id) throw new ForkdError("NOT_FOUND", `There is no snapshot with the tag ${tag}.`);
    if (request.tag !== undefined && request.tag !== tag) {
      this.#forgetFailed(request.tag);
      snapshot = await runtime.renameSnapshot(tag, request.tag);
      this.#lineage.renamed(id, request.tag);
    }
    if (request.pool !== undefined) await this.#resizePool(snapshot, request.pool);
    const changes = {
      tag: snapshot.manifest.tag,
      ...(request.metadata === undefined ? {} : { metadata: request.metadata }),
      ...(request.pool === undefined ? {} : { pool: request.pool }),
      // a name that somebody gave is there to stay
      ...(request.tag === undefined ? {} : { ephemeral: 0 }),
    };
    db.transaction(() => {
      if (tables.snapshots.get(id)) tables.snapshots.update(id, changes);
      else tables.snapshots.insert({ ...this.#rowOf(snapshot, caller), ...changes });
      events.append({ type: "snapshot.updated", snapshot: snapshot.manifest.tag, principal: caller.principal });
    });
    return this.#info(snapshot);
  }

  async #resizePool(snapshot: Snapshot, size: number): Promise<void> {
    const { runtime, settings, tables } = this.#core;
    const before = tables.snapshots.get(snapshot.manifest.id)?.pool ?? 0;
    const free = settings.maxSandboxes - runtime.sandboxes.length - (runtime.pool.size - before);
    if (size > free)
      throw new ForkdError("LIMIT_REACHED", `Cannot keep ${size} VMMs waiting: ${Math.max(0, free)} more sandboxes are allowed.`);
    try {
      await runtime.pool.resize(snapshot, size);
    } catch (error) {
      await runtime.pool.resize(snapshot, Math.min(before, runtime.pool.waiting));
      throw error;
    }
  }

  async compact(tag: string, to: string, caller: Caller): Promise<SnapshotInfo> {
    const from = await this.usable(tag);
    const shares = this.#core.tables.snapshots.get(from.manifest.id)?.shares ?? [];
    const row = this.newRow({ tag: to, ...machineOf(from), shares }, caller);
    return this.writing(row, caller, async () => {
      const snapshot = await this.#core.runtime.compact(from, { tag: to, id: row.id });
      return { snapshot, changes: {}, status: 200 };
    });
  }

  /** Writes down what came in a pack, with the answer; what it took the tag from goes unless something needs it */
  async received<V>({ tag, head, snapshots, replaced }: Received, caller: Caller, answer: (info: SnapshotInfo) => V): Promise<V> {
    const { db, tables, events, runtime } = this.#core;
    const context = await this.#viewContext();
    if (replaced !== null) await runtime.pool.drop(replaced);
    const result = db.transaction(() => {
      this.#forgetFailed(tag);
      if (replaced !== null) {
        tables.snapshots.delete(replaced);
        events.append({ type: "snapshot.deleted", snapshot: tag, principal: caller.principal, reason: "its tag was given to another one" });
      }
      if (!tables.snapshots.get(head.manifest.id)) tables.snapshots.insert(this.#rowOf(head, caller));
      if (snapshots.length > 0) events.append({ type: "snapshot.ready", snapshot: tag, principal: caller.principal });
      const value = answer(snapshotInfo(context, head, tables.snapshots.get(head.manifest.id)));
      caller.remember?.(201, value);
      return value;
    });
    for (const id of snapshots) this.#syncSoon(await runtime.snapshots.byId(id));
    if (replaced !== null) await this.#lineage.collect();
    return result;
  }

  async remove(tag: string, query: DeleteSnapshot, caller: Caller): Promise<void> {
    return this.#naming.run(async () => this.#remove(tag, query, caller));
  }

  async #remove(tag: string, query: DeleteSnapshot, caller: Caller): Promise<void> {
    const { tables, events, db, runtime } = this.#core;
    const unfinished = this.#unfinished(tag);
    if (unfinished) {
      if (unfinished.status === "writing")
        throw new ForkdError("SNAPSHOT_NOT_READY", `Cannot remove snapshot ${tag}: it is still being written.`);
      db.transaction(() => {
        tables.snapshots.delete(unfinished.id);
        events.append({ type: "snapshot.deleted", snapshot: tag, principal: caller.principal });
      });
      return;
    }
    if ((await runtime.snapshots.tagged(tag)) === undefined) throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag}.`);
    const removed = await this.#lineage.remove(tag, query.cascade ? "cascade" : query.force ? "force" : "refuse");
    db.transaction(() => {
      for (const gone of removed) {
        tables.snapshots.delete(gone.id);
        events.append({ type: "snapshot.deleted", snapshot: gone.tag, principal: caller.principal });
      }
    });
    // what was only kept for its sake goes too
    await this.#lineage.collect();
  }

  newRow(facts: Partial<SnapshotRow> & Pick<SnapshotRow, "tag" | "memory_mib" | "vcpus">, caller: Pick<Caller, "principal">): SnapshotRow {
    return {
      id: newId("sn"),
      status: "writing",
      error: null,
      ephemeral: 0,
      told: 0,
      image: null,
      disk_mib: null,
      parent_tag: null,
      branched_from: null,
      pause_ms: null,
      delta_bytes: null,
      pool: 0,
      shares: [],
      metadata: {},
      warnings: [],
      created_by: caller.principal,
      created_at: nowUnix(),
      ...facts,
    };
  }

  /**
   * Writes a snapshot down as `writing`, makes it, and writes down that it is ready together with the answer. When it fails
   * nothing of it stays, unless somebody was told of it already: then it stays as `failed`.
   */
  async writing(
    row: SnapshotRow,
    caller: Caller,
    make: () => Promise<{ snapshot: Snapshot; changes: Partial<SnapshotRow>; status: number }>,
    opts: { remember?: (info: SnapshotInfo) => void } = {},
  ): Promise<SnapshotInfo> {
    const { db, tables, events, log, runtime } = this.#core;
    if (this.#unfinished(row.tag)?.status === "writing")
      throw new ForkdError("EXISTS", `Cannot make snapshot ${row.tag}: another one of that name is being made.`);
    if ((await runtime.snapshots.tagged(row.tag)) !== undefined)
      throw new ForkdError("EXISTS", `Cannot make snapshot ${row.tag}: it exists already.`);
    db.transaction(() => {
      this.#forgetFailed(row.tag);
      tables.snapshots.insert(row);
      events.append({ type: "snapshot.writing", snapshot: row.tag, principal: caller.principal, metadata: row.metadata });
    });
    let made = false;
    try {
      const { snapshot, changes, status } = await make();
      made = true;
      const context = await this.#viewContext();
      return db.transaction(() => {
        tables.snapshots.update(row.id, { ...changes, status: "ready" });
        events.append({ type: "snapshot.ready", snapshot: row.tag, principal: caller.principal, metadata: row.metadata });
        const info = snapshotInfo(context, snapshot, tables.snapshots.get(row.id));
        if (opts.remember) opts.remember(info);
        else caller.remember?.(status, info);
        this.#syncSoon(snapshot);
        return info;
      });
    } catch (error) {
      const reason = messageOf(error);
      if (made) await runtime.removeSnapshot(row.id);
      db.transaction(() => {
        if (tables.snapshots.get(row.id)?.told === 1) tables.snapshots.update(row.id, { status: "failed", error: reason });
        else tables.snapshots.delete(row.id);
        events.append({ type: "snapshot.failed", snapshot: row.tag, principal: caller.principal, reason });
      });
      log.warn({ tag: row.tag, err: error }, "a snapshot could not be made");
      throw error;
    }
  }

  /** The row of one that is not complete, by tag */
  #unfinished(tag: string): SnapshotRow | undefined {
    return this.#core.tables.snapshots.where("tag", tag).find(({ status }) => status !== "ready");
  }

  #forgetFailed(tag: string): void {
    for (const row of this.#core.tables.snapshots.where("tag", tag))
      if (row.status === "failed") this.#core.tables.snapshots.delete(row.id);
  }

  /** Neither the answer nor the first forks wait for the disk; a snapshot that is not on it is refused after a power cut */
  #syncSoon(snapshot: Snapshot): void {
    setTimeout(() => void this.sync(snapshot), SYNC_AFTER_MS).unref();
  }

  /** Waits until every snapshot is on disk */
  async syncAll(): Promise<void> {
    for (const snapshot of await this.#core.runtime.snapshots.everything()) await this.sync(snapshot);
  }

  async sync(snapshot: Snapshot): Promise<void> {
    const { runtime, log } = this.#core;
    try {
      await runtime.snapshots.sync(snapshot);
    } catch (error) {
      // one that was removed meanwhile needs no disk
      if ((error as NodeJS.ErrnoException).code !== "ENOENT")
        log.error({ err: error, tag: snapshot.manifest.tag }, "a snapshot is not on disk");
    }
  }

  #rowOf(snapshot: Snapshot, caller: Caller): SnapshotRow {
    const { tag, id, branchedFrom } = snapshot.manifest;
    return this.newRow({ id, tag, ...machineOf(snapshot), branched_from: branchedFrom, status: "ready" }, caller);
  }

  async #info(snapshot: Snapshot): Promise<SnapshotInfo> {
    return snapshotInfo(await this.#viewContext(), snapshot, this.#core.tables.snapshots.get(snapshot.manifest.id));
  }

  async #viewContext(): Promise<ViewContext> {
    const { runtime } = this.#core;
    const images = await runtime.images.list();
    const imageNames = new Map(images.flatMap(({ id, names }) => (names[0] === undefined ? [] : [[id, names[0]]])));
    const tags = new Map([...(await runtime.snapshots.tags())].map(([tag, id]) => [id, tag]));
    return { core: this.#core, imageNames, tags };
  }
}

function machineOf({ manifest: { shape, disk } }: Snapshot): Pick<SnapshotRow, "memory_mib" | "vcpus" | "disk_mib"> {
  return { memory_mib: shape.memoryMiB, vcpus: shape.vcpus, disk_mib: disk?.sizeMiB ?? null };
}

function warmUpOf({ warm_up: warmUp }: CreateSnapshot): WarmUp {
  if (!warmUp) return { kernels: "auto" };
  return {
    exec: warmUp.exec,
    kernels: warmUp.kernels,
    timeoutMs: warmUp.timeout_secs === undefined ? undefined : warmUp.timeout_secs * 1000,
  };
}
