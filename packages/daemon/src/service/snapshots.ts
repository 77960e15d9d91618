// Snapshots: create, list, rename, remove.

import type { Metadata } from "../api/common.ts";
import type { CreateSnapshot, DeleteSnapshot, ListSnapshots, SnapshotDetails, SnapshotInfo, UpdateSnapshot } from "../api/snapshot.ts";
import { layerBytes } from "@forkd/runtime/disk/layer";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import type { NetworkPolicy } from "@forkd/runtime/egress/policy";
import type { WarmUp } from "@forkd/runtime/sandbox/boot";
import type { Received } from "@forkd/runtime/pack/receive";
import { SNAPSHOT_ID } from "@forkd/runtime/snapshot/tags";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { DEFAULT_MEMORY_MIB } from "@forkd/runtime/sandbox/machine-spec";
import { newId } from "@forkd/runtime/util/id";
import { notFound } from "@forkd/runtime/util/not-found";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { DEFAULT_PROJECT, isOf, projectOf, shownName, storedName } from "../store/project-names.ts";
import { isLocal, ownCaller, type Caller, type Viewer } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import type { Images } from "./images.ts";
import type { Lineage } from "./lineage.ts";
import { policyOf } from "./network-policy.ts";
import { snapshotWarnings } from "./older-api.ts";
import { refuseReserved } from "./reserved-tags.ts";
import { hasMetadata, pageOf, type Page } from "./paging.ts";
import { accessOf, labelsOf, NO_LABELS } from "./snapshot-labels.ts";
import { snapshotDetails, snapshotInfo, unfinishedInfo, type ViewContext } from "./snapshot-view.ts";
import type { SnapshotRow } from "../store/tables.ts";

const SYNC_AFTER_MS = 2000;

export class Snapshots {
  readonly #core: Core;
  readonly #lineage: Lineage;
  readonly #images: Pick<Images, "storedNameOf">;
  /** serializes renames and removals: each must see the tags that the previous one left */
  readonly #naming = new Semaphore(1);

  constructor(core: Core, parts: { lineage: Lineage; images: Pick<Images, "storedNameOf"> }) {
    this.#core = core;
    this.#lineage = parts.lineage;
    this.#images = parts.images;
  }

  async list(query: ListSnapshots, { project }: Viewer): Promise<Page<SnapshotInfo>> {
    const { tables, runtime, log } = this.#core;
    const context = await this.#viewContext();
    const ownRows = (): SnapshotRow[] => tables.snapshots.all().filter((row) => isOf(row.project, project));
    const before = ownRows().filter(isUnfinished);
    const onInvalid = (error: ForkdError): void => log.warn({ err: error }, "a snapshot cannot be read");
    const all = await runtime.snapshots.list({ onInvalid });
    const found = all.filter(({ manifest }) => isOf(projectOf(manifest.tag), project));
    const rows = new Map(ownRows().map((row) => [row.id, row]));
    const ids = new Set(found.map(({ manifest }) => manifest.id));
    // the row decides: folder and tag exist shortly before the snapshot is ready
    const ready = found.filter(({ manifest }) => !isUnfinished(rows.get(manifest.id)));
    // a snapshot that became ready after the folders were listed is shown as unfinished
    const unfinished = [
      ...[...rows.values()].filter(isUnfinished),
      ...before.filter(({ id }) => !isUnfinished(rows.get(id)) && !ids.has(id)),
    ];
    const wanted = [
      ...ready.map((snapshot) => snapshotInfo(context, snapshot, rows.get(snapshot.manifest.id))),
      ...unfinished.map(unfinishedInfo),
    ]
      .filter((info) => query.status === undefined || info.status === query.status)
      .filter((info) => hasMetadata(info.metadata, query.metadata))
      .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    return pageOf(wanted, keyOf, query);
  }

  async get(tag: string, viewer: Viewer): Promise<SnapshotInfo> {
    const unfinished = this.#unfinished(tag, viewer);
    if (unfinished) return unfinishedInfo(unfinished);
    return this.#info(await this.#find(tag, viewer));
  }

  async details(tag: string, viewer: Viewer): Promise<SnapshotDetails> {
    const snapshot = await this.usable(tag, viewer);
    return snapshotDetails(snapshot, await this.#lineage.of(snapshot));
  }

  /** A complete snapshot of the project. Throws SNAPSHOT_NOT_READY while it is being written and after a failure */
  async usable(tag: string, viewer: Viewer): Promise<Snapshot> {
    this.#refuseUnfinished(tag, viewer);
    return this.#find(tag, viewer);
  }

  /** The same, or a public snapshot of another project */
  async forkable(reference: string, viewer: Viewer): Promise<Snapshot> {
    this.#refuseUnfinished(reference, viewer);
    return this.#find(reference, viewer, (id) => this.#core.tables.snapshots.get(id)?.visibility === "public");
  }

  #refuseUnfinished(tag: string, viewer: Viewer): void {
    const unfinished = this.#unfinished(tag, viewer);
    if (unfinished?.status === "writing") throw new ForkdError("SNAPSHOT_NOT_READY", `Snapshot ${tag} is still being written.`);
    if (unfinished) throw new ForkdError("SNAPSHOT_NOT_READY", `Snapshot ${tag} failed: ${unfinished.error}`);
  }

  /** By tag or id. One of another project does not exist for the viewer, unless it is allowed: the error is the same */
  async #find(reference: string, { project }: Viewer, isAllowed: (id: string) => boolean = () => false): Promise<Snapshot> {
    const { snapshots } = this.#core.runtime;
    const stored = storedName(reference, project);
    const tagged = await snapshots.tagged(stored);
    const id = tagged ?? ((await snapshots.ids()).includes(reference) ? reference : undefined);
    const owner = tagged === undefined ? id && (await this.#ownerOf(id)) : projectOf(stored);
    if (id !== undefined && (owner === project || isAllowed(id))) return snapshots.get(tagged === undefined ? id : stored);
    throw notFound("snapshot", reference, await this.#namesOf(project));
  }

  /** Of one that was asked for by its id: by its row, else by the tag that it was made for. undefined: a part of a received chain */
  async #ownerOf(id: string): Promise<string | undefined> {
    const row = this.#core.tables.snapshots.get(id);
    if (row) return row.project;
    const tag = (await this.#readable(id))?.manifest.tag;
    return tag === undefined || SNAPSHOT_ID.test(tag) ? undefined : projectOf(tag);
  }

  /** undefined: damaged, or removed meanwhile */
  async #readable(id: string): Promise<Snapshot | undefined> {
    try {
      return await this.#core.runtime.snapshots.byId(id);
    } catch (error) {
      if (error instanceof ForkdError) return undefined;
      throw error;
    }
  }

  /** Tags of the project, as its members see them */
  async #namesOf(project: string): Promise<string[]> {
    const stored = [...(await this.#core.runtime.snapshots.tags()).keys()].filter((tag) => projectOf(tag) === project);
    return stored.map((tag) => shownName(tag, project));
  }

  async create(request: CreateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    const { runtime } = this.#core;
    const image = await this.#imageFor(request.image, caller);
    const warnings = snapshotWarnings(request);
    const { memory_mib: memoryMiB = DEFAULT_MEMORY_MIB, vcpus = 1 } = request;
    // check before the row is written: a wrong name must not leave a failed snapshot
    await runtime.engine.cpuFor(request.cpu);
    if (request.hugepages) await runtime.flats.checkHugePages();
    const machine = { memory_mib: memoryMiB, vcpus, disk_mib: request.disk_mib ?? null };
    const row = this.newRow({ tag: request.tag, image, ...machine, ...labelsOf(request), ...accessOf(request), warnings }, caller);
    return this.writing(row, caller, async () => {
      const { snapshot } = await runtime.createSnapshot({
        tag: row.tag,
        id: row.id,
        image,
        memoryMiB,
        vcpus,
        cpu: request.cpu,
        hugepages: request.hugepages,
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

  /** Stored name or id of an image of the project. The default image of the daemon is offered to every project */
  async #imageFor(named: string | undefined, viewer: Viewer): Promise<string> {
    const { images, settings } = { images: this.#images, settings: this.#core.settings };
    if (named !== undefined) return images.storedNameOf(named, viewer);
    try {
      return await images.storedNameOf(settings.defaultImage, viewer);
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") throw error;
      return images.storedNameOf(settings.defaultImage, { project: DEFAULT_PROJECT });
    }
  }

  async update(tag: string, request: UpdateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    return this.#naming.run(async () => this.#update(tag, request, caller));
  }

  async #update(tag: string, request: UpdateSnapshot, caller: Caller): Promise<SnapshotInfo> {
    const { runtime, tables, events, db } = this.#core;
    // waiting VMMs take memory of the host, which no quota counts
    if (request.pool !== undefined && !caller.isOperator)
      throw new ForkdError("FORBIDDEN", `Cannot keep VMMs waiting for ${tag}: it needs the scope operator.`);
    let snapshot = await this.usable(tag, caller);
    const { id } = snapshot.manifest;
    const stored = storedName(tag, caller.project);
    // require the tag: found by its id, the snapshot would keep its old tag beside the new one
    if ((await runtime.snapshots.tagged(stored)) !== id) throw new ForkdError("NOT_FOUND", `There is no snapshot with the tag ${tag}.`);
    if (request.tag !== undefined && request.tag !== tag) {
      const wanted = storedName(request.tag, caller.project);
      this.#forgetFailed(wanted);
      snapshot = await runtime.renameSnapshot(stored, wanted);
      this.#lineage.renamed(id, wanted);
    }
    if (request.pool !== undefined) await this.#resizePool(snapshot, request.pool);
    const changes = {
      tag: snapshot.manifest.tag,
      ...labelsOf(request),
      ...accessOf(request),
      ...(request.pool === undefined ? {} : { pool: request.pool }),
      // a snapshot that a client tags is no longer ephemeral
      ...(request.tag === undefined ? {} : { ephemeral: 0 }),
    };
    // durable: if a power failure lost this change, the snapshot would be ephemeral again and collected
    db.durably(() => {
      if (tables.snapshots.get(id)) tables.snapshots.update(id, changes);
      else tables.snapshots.insert({ ...this.#rowOf(snapshot, caller), ...changes });
      events.append({ type: "snapshot.updated", project: caller.project, snapshot: snapshot.manifest.tag, principal: caller.principal });
    });
    return this.#info(snapshot);
  }

  /**
   * Moves a snapshot to a tag, even a taken one. At every moment, also after a crash, the tag refers to one of the two.
   * The data of the replaced snapshot is kept while something needs it; its pool moves to the new one.
   */
  async publish(
    from: string,
    { tag: wanted, ...labels }: { tag: string; metadata: Metadata; description?: string | undefined },
    caller: Caller,
  ): Promise<SnapshotInfo> {
    refuseReserved(wanted, caller);
    const { project, principal } = caller;
    const tag = storedName(wanted, project);
    return this.#naming.run(async () => {
      const { runtime, tables, events, db } = this.#core;
      const { id } = (await this.usable(from, caller)).manifest;
      if (this.#unfinished(tag, caller)?.status === "writing")
        throw new ForkdError("EXISTS", `Cannot name snapshot ${tag}: another one of that name is being made.`);
      const replaced = await runtime.snapshots.tagged(tag);
      const pool = (replaced === undefined ? undefined : tables.snapshots.get(replaced)?.pool) ?? 0;
      const snapshot = await runtime.renameSnapshot(storedName(from, project), tag, { replace: true });
      this.#lineage.renamed(id, tag);
      if (replaced !== undefined) await runtime.pool.drop(replaced);
      db.durably(() => {
        this.#forgetFailed(tag);
        if (replaced !== undefined) {
          tables.snapshots.delete(replaced);
          events.append({ type: "snapshot.deleted", project, snapshot: tag, principal, reason: "its tag was given to another one" });
        }
        tables.snapshots.update(id, { tag, ...labelsOf(labels), ephemeral: 0 });
        events.append({ type: "snapshot.updated", project, snapshot: tag, principal });
      });
      // a recipe or template, which is made to be forked
      void runtime.zygotes.make(snapshot);
      if (pool > 0) {
        await this.#resizePool(snapshot, pool);
        tables.snapshots.update(id, { pool });
      }
      await this.#lineage.collect();
      return this.#info(snapshot);
    });
  }

  async #resizePool(snapshot: Snapshot, size: number): Promise<void> {
    const { runtime, settings } = this.#core;
    const before = runtime.pool.sizeOf(snapshot.manifest.id);
    const free = settings.maxSandboxes - runtime.sandboxes.length - (runtime.pool.size - before);
    if (size > free)
      throw new ForkdError("LIMIT_REACHED", `Cannot keep ${size} VMMs waiting: ${Math.max(0, free)} more sandboxes are allowed.`);
    try {
      await runtime.keepReady(snapshot, size);
    } catch (error) {
      await runtime.pool.resize(snapshot, Math.min(before, runtime.pool.waiting));
      throw error;
    }
  }

  async compact(tag: string, to: string, caller: Caller): Promise<SnapshotInfo> {
    return this.copy(await this.usable(tag, caller), to, caller);
  }

  /**
   * A copy that builds on no other snapshot, with the tag in the caller's project. `network`: that of a copy for another
   * project, which gets no shares either
   */
  async copy(from: Snapshot, to: string, caller: Caller, network?: NetworkPolicy): Promise<SnapshotInfo> {
    const shares = network ? [] : (this.#core.tables.snapshots.get(from.manifest.id)?.shares ?? []);
    const row = this.newRow({ tag: to, ...machineOf(from), shares }, caller);
    return this.writing(row, caller, async () => {
      const snapshot = await this.#core.runtime.compact(from, { tag: row.tag, id: row.id, network });
      return { snapshot, changes: {}, status: 200 };
    });
  }

  /** Records a received pack together with the response. Removes the snapshot that had the tag, unless it is needed */
  async received<V>({ tag, head, snapshots, replaced }: Received, caller: Caller, answer: (info: SnapshotInfo) => V): Promise<V> {
    const { db, tables, events, runtime, quotas } = this.#core;
    const context = await this.#viewContext();
    const { project, principal } = caller;
    const bytes = await ownBytes(head);
    if (replaced !== null) await runtime.pool.drop(replaced);
    const result = db.durably(() => {
      this.#forgetFailed(tag);
      if (replaced !== null) {
        tables.snapshots.delete(replaced);
        events.append({ type: "snapshot.deleted", project, snapshot: tag, principal, reason: "its tag was given to another one" });
      }
      if (!tables.snapshots.get(head.manifest.id)) tables.snapshots.insert({ ...this.#rowOf(head, caller), bytes });
      quotas.check(project, ["snapshots", "storage_bytes"]);
      if (snapshots.length > 0) events.append({ type: "snapshot.ready", project, snapshot: tag, principal });
      const value = answer(snapshotInfo(context, head, tables.snapshots.get(head.manifest.id)));
      caller.remember?.(201, value);
      return value;
    });
    if (replaced !== null) await this.#lineage.collect();
    return result;
  }

  async remove(tag: string, query: DeleteSnapshot, caller: Caller): Promise<void> {
    return this.#naming.run(async () => this.#remove(tag, query, caller));
  }

  async #remove(tag: string, query: DeleteSnapshot, caller: Caller): Promise<void> {
    const { tables, events, db, runtime } = this.#core;
    const { project, principal } = caller;
    const unfinished = this.#unfinished(tag, caller);
    if (unfinished) {
      if (unfinished.status === "writing")
        throw new ForkdError("SNAPSHOT_NOT_READY", `Cannot remove snapshot ${tag}: it is still being written.`);
      db.transaction(() => {
        tables.snapshots.delete(unfinished.id);
        events.append({ type: "snapshot.deleted", project, snapshot: unfinished.tag, principal });
      });
      return;
    }
    const stored = storedName(tag, project);
    const isOwn = projectOf(stored) === project && (await runtime.snapshots.tags()).has(stored);
    if (!isOwn) throw notFound("snapshot", tag, await this.#namesOf(project));
    const removed = await this.#lineage.remove(stored, query.cascade ? "cascade" : query.force ? "force" : "refuse");
    db.durably(() => {
      for (const gone of removed) {
        tables.snapshots.delete(gone.id);
        events.append({ type: "snapshot.deleted", project, snapshot: gone.tag, principal });
      }
    });
    // also remove bases that only this snapshot needed
    await this.#lineage.collect();
  }

  newRow(
    facts: Partial<SnapshotRow> & Pick<SnapshotRow, "tag" | "memory_mib" | "vcpus">,
    caller: Pick<Caller, "principal" | "project">,
  ): SnapshotRow {
    return {
      id: newId("sn", this.#core.node),
      project: caller.project,
      visibility: "private",
      expires_at: null,
      bytes: null,
      status: "writing",
      error: null,
      ephemeral: 0,
      announced: 0,
      image: null,
      disk_mib: null,
      parent_tag: null,
      branched_from: null,
      pause_ms: null,
      delta_bytes: null,
      pool: 0,
      shares: [],
      ...NO_LABELS,
      warnings: [],
      created_by: caller.principal,
      created_at: nowUnix(),
      ...facts,
      tag: storedName(facts.tag, caller.project),
    };
  }

  /**
   * Stores a row with status `writing`, makes the snapshot, and stores the status `ready` together with the response.
   * On failure everything is removed; an announced snapshot is kept as `failed`.
   */
  async writing(
    row: SnapshotRow,
    caller: Caller,
    make: () => Promise<{ snapshot: Snapshot; changes: Partial<SnapshotRow>; status: number }>,
    opts: { remember?: (info: SnapshotInfo) => void } = {},
  ): Promise<SnapshotInfo> {
    const { db, tables, events, log, runtime } = this.#core;
    const { project, metadata } = row;
    const { principal } = caller;
    const shown = shownName(row.tag, project);
    if (this.#unfinished(row.tag, row)?.status === "writing")
      throw new ForkdError("EXISTS", `Cannot make snapshot ${shown}: another one of that name is being made.`);
    if ((await runtime.snapshots.tagged(row.tag)) !== undefined)
      throw new ForkdError("EXISTS", `Cannot make snapshot ${shown}: it exists already.`);
    this.#refuseTooMany(row);
    const { quotas } = this.#core;
    db.transaction(() => {
      this.#forgetFailed(row.tag);
      // one more byte than there is: a full project makes no further snapshot, whatever its size
      quotas.foresee(project, { storage_bytes: 1 });
      tables.snapshots.insert(row);
      quotas.check(project, ["snapshots"]);
      events.append({ type: "snapshot.writing", project, snapshot: row.tag, principal, metadata });
    });
    let made = false;
    try {
      const { snapshot, changes, status } = await make();
      made = true;
      const context = await this.#viewContext();
      const bytes = await ownBytes(snapshot);
      return db.transaction(() => {
        tables.snapshots.update(row.id, { ...changes, status: "ready", bytes });
        quotas.check(project, ["storage_bytes"]);
        events.append({ type: "snapshot.ready", project, snapshot: row.tag, principal, metadata });
        const info = snapshotInfo(context, snapshot, tables.snapshots.get(row.id));
        if (opts.remember) opts.remember(info);
        else caller.remember?.(status, info);
        this.#syncSoon(snapshot);
        return info;
      });
    } catch (error) {
      const reason = messageOf(error);
      if (made) await runtime.removeSnapshot(row.id);
      db.eventually(() => {
        if (tables.snapshots.get(row.id)?.announced === 1) tables.snapshots.update(row.id, { status: "failed", error: reason });
        else tables.snapshots.delete(row.id);
        events.append({ type: "snapshot.failed", project, snapshot: row.tag, principal, reason });
      });
      log.warn({ tag: row.tag, err: error }, "a snapshot could not be made");
      throw error;
    }
  }

  /** Limits the snapshots of a token: scope `exec` cannot delete them. Ephemeral snapshots do not count */
  #refuseTooMany({ created_by: principal, ephemeral }: SnapshotRow): void {
    if (ephemeral === 1 || isLocal({ principal })) return;
    const most = this.#core.settings.maxSnapshots;
    const counted = this.#core.db.get("SELECT count(*) AS n FROM snapshots WHERE created_by = ? AND ephemeral = 0", principal);
    if (Number(counted?.["n"] ?? 0) < most) return;
    throw new ForkdError("LIMIT_REACHED", `Cannot make a snapshot: token ${principal} has made ${most} already.`, {
      hint: "Delete unneeded ones, or raise the setting `max_snapshots`.",
      details: { resource: `snapshots of token ${principal}`, needed: 1, free: 0 },
    });
  }

  /** Row of an incomplete snapshot, by tag or id */
  #unfinished(name: string, { project }: Viewer): SnapshotRow | undefined {
    const { snapshots } = this.#core.tables;
    const found = snapshots.where("tag", storedName(name, project)).find(isUnfinished) ?? [snapshots.get(name)].find(isUnfinished);
    return found?.project === project ? found : undefined;
  }

  /** `tag`: as it is stored */
  #forgetFailed(tag: string): void {
    for (const row of this.#core.tables.snapshots.where("tag", tag))
      if (row.status === "failed") this.#core.tables.snapshots.delete(row.id);
  }

  /** Syncs in the background, not to delay the response. After a power failure an unsynced snapshot is refused */
  #syncSoon(snapshot: Snapshot): void {
    setTimeout(() => void this.sync(snapshot), SYNC_AFTER_MS).unref();
  }

  /** Measures the snapshots of earlier versions, whose rows lack the size */
  async measureAll(): Promise<void> {
    const { tables } = this.#core;
    for (const row of tables.snapshots.where("status", "ready").filter(({ bytes }) => bytes === null)) {
      const found = await this.#readable(row.id);
      if (found) tables.snapshots.update(row.id, { bytes: await ownBytes(found) });
    }
  }

  /** Removes snapshots that have expired; one that something needs stays until it is free */
  async removeExpired(principal: string): Promise<void> {
    const { tables, log } = this.#core;
    const late = tables.snapshots.where("status", "ready").filter(({ expires_at: ends }) => ends !== null && ends <= nowUnix());
    for (const { tag, project } of late) {
      try {
        await this.remove(tag, { cascade: undefined, force: undefined }, ownCaller(principal, project));
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        if (error.code !== "IN_USE" && error.code !== "NOT_FOUND")
          log.warn({ tag, err: error }, "an expired snapshot could not be removed");
      }
    }
  }

  /** Syncs every snapshot */
  async syncAll(): Promise<void> {
    for (const snapshot of await this.#core.runtime.snapshots.everything()) await this.sync(snapshot);
  }

  /** Background sync of one snapshot: a failure is logged and added to its warnings */
  async sync(snapshot: Snapshot): Promise<void> {
    try {
      await this.onDisk(snapshot);
    } catch (error) {
      // removed meanwhile
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      const { tag, id } = snapshot.manifest;
      this.#core.log.error({ err: error, tag }, "a snapshot is not on disk");
      if (error instanceof ForkdError) this.#warn(id, error.message);
    }
  }

  #warn(id: string, warning: string): void {
    const { db, tables, events } = this.#core;
    const row = tables.snapshots.get(id);
    if (!row || row.warnings.includes(warning)) return;
    db.eventually(() => {
      tables.snapshots.update(id, { warnings: [...row.warnings, warning] });
      events.append({ type: "snapshot.updated", project: row.project, snapshot: row.tag, reason: warning });
    });
  }

  /** Resolves when the snapshot is durable; throws if it cannot be synced */
  async onDisk({ manifest: { id } }: Snapshot): Promise<void> {
    const { runtime, db } = this.#core;
    // sync the row too: with the status "writing" the next start would remove the snapshot
    await db.sync();
    await runtime.snapshots.sync(id);
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
    const imageNames = new Map(images.map(({ id, names }) => [id, names]));
    const tags = new Map([...(await runtime.snapshots.tags())].map(([tag, id]) => [id, tag]));
    return { core: this.#core, imageNames, tags };
  }
}

/** Unique in lists of every project */
function keyOf({ project, tag }: SnapshotInfo): string {
  return storedName(tag, project);
}

/** Disk space that only this snapshot takes: its memory, device state and the layers that it has alone */
async function ownBytes({ manifest, layers }: Snapshot): Promise<number> {
  return manifest.memory.bytes + manifest.deviceStateBytes + (await layerBytes(layers.map(({ path }) => path))).ownBytes;
}

function isUnfinished(row: SnapshotRow | undefined): row is SnapshotRow {
  return row !== undefined && row.status !== "ready";
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
