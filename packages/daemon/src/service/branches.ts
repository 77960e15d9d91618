// Branches and forks of running sandboxes.

import type { ForkSandbox, SandboxInfo } from "../api/sandbox.ts";
import type { BranchRequest, ForkedSandboxes } from "../api/branch.ts";
import type { SnapshotInfo } from "../api/snapshot.ts";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { newId } from "@forkd/runtime/util/id";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { shownName } from "../store/project-names.ts";
import type { SnapshotRow } from "../store/tables.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";
import { policyOf } from "./network-policy.ts";
import type { Entry, Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { refuseReserved } from "./reserved-tags.ts";
import { allowedShares } from "./shares.ts";
import { accessOf, labelsOf } from "./snapshot-labels.ts";
import { unfinishedInfo } from "./snapshot-view.ts";
import type { Snapshots } from "./snapshots.ts";

const RETRY_SECS = 1;

type Parts = { registry: Registry; sandboxes: Sandboxes; snapshots: Snapshots; lineage: Lineage };
type Capture = {
  row: SnapshotRow;
  caller: Caller;
  onResumed?: (pauseMs: number) => void;
  remember?: (info: SnapshotInfo) => void;
  /** on success the source stays paused, because the caller ends it next */
  stayPaused?: boolean;
  hold?: boolean | undefined;
};

export class Branches {
  readonly #core: Core;
  readonly #parts: Parts;
  /** with their projects; includes branches that complete after their response */
  readonly #underWay = new Map<Promise<unknown>, string>();

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  get inFlight(): number {
    return this.#underWay.size;
  }

  /** Resolves when no branch is in progress: stopping in the middle would leave a source paused */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay.keys());
  }

  /** With `wait: false` it resolves when the source runs again, and the snapshot is completed in the background */
  async branch(id: string, request: BranchRequest, caller: Caller): Promise<{ info: SnapshotInfo; waited: boolean }> {
    refuseReserved(request.tag, caller);
    const warnings = branchWarnings(request, this.#parts.registry.get(id, caller));
    const row = this.#row(id, { tag: request.tag ?? this.#newTag(), ...labelsOf(request), ...accessOf(request), warnings }, caller);
    const { hold } = request;
    if (request.wait) return { info: await this.#capture(id, { row, caller, hold }), waited: true };
    const resumed = Promise.withResolvers<SnapshotInfo>();
    const onResumed = (pauseMs: number): void => {
      this.#core.tables.snapshots.update(row.id, { announced: 1, pause_ms: pauseMs });
      const info = unfinishedInfo({ ...row, pause_ms: pauseMs });
      caller.remember?.(202, info);
      resumed.resolve(info);
    };
    // the response precedes the snapshot's completion: a disconnect must not cancel it, nor a second response be stored
    const background: Caller = { ...caller, signal: new AbortController().signal, remember: () => undefined };
    const done = this.#capture(id, { row, caller: background, onResumed, hold });
    done.catch((error: unknown) => resumed.reject(error)); // after the response, the snapshot's status reports the failure
    return { info: await resumed.promise, waited: false };
  }

  /** Branch and fork in one step. Without a tag the snapshot is ephemeral */
  async fork(id: string, request: ForkSandbox, caller: Caller): Promise<ForkedSandboxes> {
    refuseReserved(request.tag, caller);
    const { sandboxes, snapshots } = this.#parts;
    sandboxes.refuseCordoned();
    const row = this.#row(id, { tag: request.tag ?? this.#newTag(), ephemeral: request.tag === undefined ? 1 : 0 }, caller);
    const { n } = request;
    // validate everything before the source is paused
    if (request.network) policyOf(request.network, caller, this.#core.runtime.network);
    if (request.shares) await allowedShares(this.#core, request.shares, caller);
    // an emulated source passed the isolation check when it was created; its forks are isolated in the same way
    const { isolation = "any" } = request;
    await sandboxes.possibleLimits({ ...request, isolation }, this.#parts.registry.get(id, caller).row);
    return sandboxes.admit({ n, vcpus: row.vcpus, memoryMiB: row.memory_mib, diskMiB: row.disk_mib, caller }, async () =>
      this.#core.runtime.locks.whileNeeded(row.id, async () => {
        const snapshot = await this.#capture(id, { row, caller, remember: () => undefined });
        try {
          const source = await snapshots.usable(row.tag, caller);
          let answer: ForkedSandboxes = { snapshot, sandboxes: [] };
          const facts = await sandboxes.facts({ ...request, isolation }, source, caller);
          const remember = (infos: SandboxInfo[]): void => {
            answer = { snapshot, sandboxes: infos };
            caller.remember?.(201, answer);
          };
          await sandboxes.forkAdmitted(source, { request: { ...request, isolation }, facts, caller, remember });
          return answer;
        } catch (error) {
          // a failed request must not leave its snapshot behind, tagged or not
          await this.#takeBack(row, error);
          throw error;
        }
      }),
    );
  }

  /** Passes a durable snapshot to `use` and leaves the source paused; on failure the source is resumed */
  async suspendFrom<V>(id: string, tag: string, caller: Caller, use: (snapshot: Snapshot) => Promise<V>): Promise<V> {
    // ephemeral: if `use` fails to record a reference, the snapshot is collected
    const row = this.#row(id, { tag, ephemeral: 1 }, caller);
    return this.#core.runtime.locks.whileNeeded(row.id, async () => {
      await this.#capture(id, { row, caller, remember: () => undefined, stayPaused: true });
      try {
        const snapshot = await this.#parts.snapshots.usable(tag, caller);
        // must be durable: the source, the only other copy, is ended next
        await this.#parts.snapshots.onDisk(snapshot);
        return await use(snapshot);
      } catch (error) {
        await this.#parts.registry.get(id, caller).sandbox?.resume();
        await this.#takeBack(row, error);
        throw error;
      }
    });
  }

  async #capture(id: string, capture: Capture): Promise<SnapshotInfo> {
    const { branchConcurrency } = this.#core.settings;
    const { project } = capture.row;
    // per project: a project that branches without pause must not refuse the branches of another
    const own = [...this.#underWay.values()].filter((other) => other === project).length;
    if (own >= branchConcurrency)
      throw new ForkdError("BUSY", `Cannot branch sandbox ${id}: ${own} branches are under way.`, {
        details: { branch_concurrency: branchConcurrency, retry_after_secs: RETRY_SECS },
      });
    const work = this.#branch(id, capture);
    this.#underWay.set(work, project);
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
            const { onResumed, stayPaused, hold } = capture;
            const queue = row.project;
            const result = await runtime.branch(sandbox, { tag: row.tag, id: row.id, queue, onResumed, stayPaused, hold });
            pauseMs = result.pauseMs;
            deltaBytes = result.deltaBytes;
            ok = true;
            const { snapshot } = result;
            this.#parts.registry.record(entry, { branch_count: entry.row.branch_count + 1, last_branch_path: snapshot.memory });
            return { snapshot, changes: { pause_ms: pauseMs, delta_bytes: deltaBytes }, status: 201 };
          },
          capture.remember ? { remember: capture.remember } : {},
        );
      return await this.#parts.sandboxes.use(id, caller, work, { isTransition: capture.stayPaused });
    } finally {
      meter.branched(pauseMs, deltaBytes, ok);
    }
  }

  #row(id: string, facts: Partial<SnapshotRow> & { tag: string }, caller: Caller): SnapshotRow {
    const { row } = this.#parts.registry.get(id, caller);
    const { memory_mib, vcpus, disk_mib, shares, snapshot_tag: parent_tag } = row;
    return this.#parts.snapshots.newRow({ memory_mib, vcpus, disk_mib, shares, parent_tag, branched_from: row.id, ...facts }, caller);
  }

  #newTag(): string {
    return newId("br", this.#core.node);
  }

  async #takeBack(row: SnapshotRow, cause: unknown): Promise<void> {
    const { runtime, tables, log, db, events } = this.#core;
    try {
      await runtime.removeSnapshot(row.id);
      db.eventually(() => {
        tables.snapshots.delete(row.id);
        events.append({ type: "snapshot.deleted", project: row.project, snapshot: row.tag, reason: messageOf(cause) });
      });
    } catch (error) {
      log.error({ err: error, tag: row.tag, cause: messageOf(cause) }, "the snapshot of a failed fork could not be removed");
    }
  }
}

function branchWarnings(request: BranchRequest, { row }: Entry): string[] {
  const own = shownName(row.snapshot_tag, row.project);
  if (request.parent_tag === undefined || request.parent_tag === own) return [];
  return [`parent_tag has no effect: the branch builds on ${own}, from which the sandbox was forked.`];
}
