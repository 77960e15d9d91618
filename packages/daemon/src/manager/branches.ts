// Branches of running sandboxes, and forks of those.

import type { ForkSandbox, SandboxInfo } from "../api/sandbox.ts";
import type { BranchRequest, ForkedSandboxes, SnapshotInfo } from "../api/snapshot.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { newId } from "../util/id.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { SnapshotRow } from "../store/tables.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";
import { policyOf } from "./network-policy.ts";
import type { Entry, Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { allowedShares } from "./shares.ts";
import { unfinishedInfo } from "./snapshot-view.ts";
import type { Snapshots } from "./snapshots.ts";

const RETRY_SECS = 1;

type Parts = { registry: Registry; sandboxes: Sandboxes; snapshots: Snapshots; lineage: Lineage };
type Capture = {
  row: SnapshotRow;
  caller: Caller;
  onResumed?: (pauseMs: number) => void;
  remember?: (info: SnapshotInfo) => void;
  /** the source stays stopped when all went well: it is about to be ended */
  stayPaused?: boolean;
};

export class Branches {
  readonly #core: Core;
  readonly #parts: Parts;
  /** also those whose requests were answered before they were complete */
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  get inFlight(): number {
    return this.#underWay.size;
  }

  /** Resolves when no branch is under way: a source must not be left in the middle of one */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
  }

  /** With `wait: false` it answers when the source runs again, and the snapshot is completed afterwards */
  async branch(id: string, request: BranchRequest, caller: Caller): Promise<{ info: SnapshotInfo; waited: boolean }> {
    const warnings = branchWarnings(request, this.#parts.registry.get(id));
    const row = this.#row(id, { tag: request.tag ?? newTag(), metadata: request.metadata ?? {}, warnings }, caller);
    if (request.wait) return { info: await this.#capture(id, { row, caller }), waited: true };
    const resumed = Promise.withResolvers<SnapshotInfo>();
    const onResumed = (pauseMs: number): void => {
      this.#core.tables.snapshots.update(row.id, { told: 1, pause_ms: pauseMs });
      const info = unfinishedInfo({ ...row, pause_ms: pauseMs });
      caller.remember?.(202, info);
      resumed.resolve(info);
    };
    // the client has its answer before the snapshot is complete: neither its going away nor a second answer matters then
    const background: Caller = { ...caller, signal: new AbortController().signal, remember: () => undefined };
    const done = this.#capture(id, { row, caller: background, onResumed });
    done.catch((error: unknown) => resumed.reject(error)); // after the answer, the snapshot's own status tells
    return { info: await resumed.promise, waited: false };
  }

  /** Branch and fork in one; without a tag the snapshot goes when nothing needs it any more */
  async fork(id: string, request: ForkSandbox, caller: Caller): Promise<ForkedSandboxes> {
    const { sandboxes, lineage, snapshots } = this.#parts;
    const row = this.#row(id, { tag: request.tag ?? newTag(), ephemeral: request.tag === undefined ? 1 : 0 }, caller);
    const { n } = request;
    // all of it is looked at before the source is stopped for it
    if (request.network) policyOf(request.network, caller, this.#core.runtime.network);
    if (request.shares) await allowedShares(this.#core, request.shares, caller);
    await sandboxes.possibleLimits(request, row.memory_mib);
    return sandboxes.admit({ n, memoryMiB: row.memory_mib, diskMiB: row.disk_mib, caller }, async () =>
      lineage.pinned(row.id, async () => {
        const snapshot = await this.#capture(id, { row, caller, remember: () => undefined });
        try {
          const source = await snapshots.usable(row.tag);
          let answer: ForkedSandboxes = { snapshot, sandboxes: [] };
          const facts = await sandboxes.facts(request, source, caller);
          const remember = (infos: SandboxInfo[]): void => {
            answer = { snapshot, sandboxes: infos };
            caller.remember?.(201, answer);
          };
          await sandboxes.forkAdmitted(source, { request, facts, caller, remember });
          return answer;
        } catch (error) {
          // the request failed, so nothing of it stays: an ephemeral one is collected, a named one is taken back
          await this.#takeBack(row, error);
          throw error;
        }
      }),
    );
  }

  /** Takes a snapshot for `use`, and leaves the source stopped */
  async last<V>(id: string, tag: string, caller: Caller, use: (snapshot: Snapshot) => Promise<V>): Promise<V> {
    // nothing but its user keeps it: when that is not written down, it goes
    const row = this.#row(id, { tag, ephemeral: 1 }, caller);
    return this.#parts.lineage.pinned(row.id, async () => {
      await this.#capture(id, { row, caller, remember: () => undefined, stayPaused: true });
      return use(await this.#parts.snapshots.usable(tag));
    });
  }

  async #capture(id: string, capture: Capture): Promise<SnapshotInfo> {
    const { branchConcurrency } = this.#core.settings;
    if (this.inFlight >= branchConcurrency)
      throw new ForkdError("BUSY", `Cannot branch sandbox ${id}: ${this.inFlight} branches are under way.`, {
        details: { branch_concurrency: branchConcurrency, retry_after_secs: RETRY_SECS },
      });
    const work = this.#branch(id, capture);
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  async #branch(id: string, capture: Capture): Promise<SnapshotInfo> {
    const { meter, runtime } = this.#core;
    const { row, caller } = capture;
    let pauseMs = 0;
    let deltaBytes = 0;
    let ok = false;
    try {
      const work = async (sandbox: Sandbox, entry: Entry): Promise<SnapshotInfo> =>
        this.#parts.snapshots.writing(
          row,
          caller,
          async () => {
            const onResumed = capture.onResumed;
            const result = await runtime.branch(sandbox, { tag: row.tag, id: row.id, onResumed, stayPaused: capture.stayPaused });
            pauseMs = result.pauseMs;
            deltaBytes = result.deltaBytes;
            ok = true;
            const { snapshot } = result;
            this.#parts.registry.change(entry, { branch_count: entry.row.branch_count + 1, last_branch_path: snapshot.memory });
            return { snapshot, changes: { pause_ms: pauseMs, delta_bytes: deltaBytes }, status: 201 };
          },
          capture.remember ? { remember: capture.remember } : {},
        );
      return await this.#parts.sandboxes.use(id, work, { isTurning: capture.stayPaused });
    } finally {
      meter.branched(pauseMs, deltaBytes, ok);
    }
  }

  #row(id: string, facts: Partial<SnapshotRow> & { tag: string }, caller: Caller): SnapshotRow {
    const { row } = this.#parts.registry.get(id);
    const { memory_mib, vcpus, disk_mib, shares, snapshot_tag: parent_tag } = row;
    return this.#parts.snapshots.newRow({ memory_mib, vcpus, disk_mib, shares, parent_tag, branched_from: row.id, ...facts }, caller);
  }

  async #takeBack(row: SnapshotRow, cause: unknown): Promise<void> {
    const { runtime, tables, log, db, events } = this.#core;
    try {
      await runtime.removeSnapshot(row.id);
      db.transaction(() => {
        tables.snapshots.delete(row.id);
        events.append({ type: "snapshot.deleted", snapshot: row.tag, reason: messageOf(cause) });
      });
    } catch (error) {
      log.error({ err: error, tag: row.tag, cause: messageOf(cause) }, "the snapshot of a failed fork could not be removed");
    }
  }
}

function newTag(): string {
  return newId("br");
}

function branchWarnings(request: BranchRequest, { row }: Entry): string[] {
  if (request.parent_tag === undefined || request.parent_tag === row.snapshot_tag) return [];
  return [`parent_tag has no effect: the branch builds on ${row.snapshot_tag}, from which the sandbox was forked.`];
}
