// Recovery at daemon start: adopts the previous daemon's sandboxes and cleans up incomplete snapshots.

import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { bootId } from "@forkd/runtime/util/boot-id";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import type { SnapshotRow } from "../store/tables.ts";
import { nowUnix, type Core } from "./core.ts";
import { hostLimits } from "./limit-fields.ts";
import type { Entry, Registry } from "./registry.ts";

const AT_ONCE = 8;
/** After this time a slow adoption no longer blocks the next one */
const TURN_MS = 1000;
/** Upper bound for the delay of the daemon's start */
const START_WITHIN_MS = 3000;
const KEEP_FAILED_SECS = 24 * 3600;

/** `late`: adoptions still in progress */
export type Adopted = { adopted: number; lost: number; late: number; ended: number };

/**
 * Adopts every acknowledged sandbox or marks it as lost, with a reason, and ends all other VMs. A VMM that does not
 * respond delays neither the start nor other adoptions; only requests for its sandbox wait.
 */
export async function adoptAll(core: Core, registry: Registry): Promise<Adopted> {
  const boot = await bootId();
  const turns = new Semaphore(AT_ONCE);
  let adopted = 0;
  let lost = 0;
  const settle = async (entry: Entry): Promise<void> => {
    const reason = entry.row.boot_id === boot ? await adopt(core, entry) : "the host was restarted";
    // the daemon is stopping: leave the row for the next daemon
    if (core.runtime.isClosing) return;
    if (reason === undefined) {
      adopted++;
      registry.change(entry, {}, { type: "sandbox.adopted" });
      return;
    }
    lost++;
    registry.change(entry, { state: "lost", reason, name: null, last_active: nowUnix() }, { type: "sandbox.lost", reason });
  };
  const late = new Set(registry.live);
  const take = async (entry: Entry): Promise<void> => {
    const begun = turns.run(async () => {
      const settling = settle(entry);
      await Promise.race([settling, sleep(TURN_MS, undefined, { ref: false })]);
      // wrapped in an object, so that the semaphore does not await a slow adoption
      return { settling };
    });
    entry.transition = begun.then(async ({ settling }) => settling);
    await entry.transition.finally(() => (entry.transition = undefined));
    late.delete(entry);
  };
  const all = Promise.all([...late].map(take));
  await Promise.race([all, sleep(START_WITHIN_MS, undefined, { ref: false })]);
  if (late.size > 0) all.catch((error: unknown) => core.log.error({ err: error }, `a sandbox could not be adopted: ${messageOf(error)}`));
  lost += await findStates(core, registry);
  const ended = await core.runtime.endOthers([...late].map(({ row }) => ({ id: row.id, pid: row.pid, snapshotId: row.snapshot_id })));
  await settleSnapshots(core);
  return { adopted, lost, late: late.size, ended };
}

/** Marks suspended sandboxes without a saved state as lost: a power failure can restore a deleted row, not its data */
async function findStates({ runtime }: Core, registry: Registry): Promise<number> {
  const ids = new Set(await runtime.snapshots.ids());
  const gone = registry.lasting.filter(({ row }) => row.state === "suspended" && !ids.has(row.snapshot_id));
  const reason = "its saved state is gone";
  for (const entry of gone)
    registry.change(entry, { state: "lost", reason, name: null, last_active: nowUnix() }, { type: "sandbox.lost", reason });
  return gone.length;
}

/** undefined: adopted. Otherwise the reason why the sandbox is lost */
async function adopt({ runtime, log }: Core, entry: Entry): Promise<string | undefined> {
  const { row } = entry;
  try {
    const adopted = await runtime.adopt({
      id: row.id,
      process: { pid: row.pid, startTime: row.start_time },
      snapshot: await runtime.snapshots.byId(row.snapshot_id),
      paused: row.state === "paused",
      env: row.env,
      policy: row.network,
      spentBytes: row.egress_bytes,
      shares: row.shares,
      certificate: row.certificate,
      forkMs: row.fork_ms,
      createdAt: new Date(row.created_at * 1000),
      limits: hostLimits(row, row.memory_mib),
      // snapshots/ID/memory.delta
      lastBranch: row.last_branch_path === null ? undefined : basename(dirname(row.last_branch_path)),
    });
    if (typeof adopted === "string") return adopted;
    entry.sandbox = adopted;
    // restart the idle time: work in the guest may have kept the sandbox in use while no daemon ran
    entry.lastActive = Date.now();
    return undefined;
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    log.warn({ sandbox: row.id, err: error }, "a sandbox could not be adopted");
    return error.message;
  }
}

/**
 * Removes snapshots that were still being written, complete or not. An announced snapshot is kept instead: it gets its
 * tag if it is complete, and is marked as failed otherwise.
 */
async function settleSnapshots(core: Core): Promise<void> {
  const { db, tables, events, runtime } = core;
  const ids = new Set(await runtime.snapshots.ids());
  const tags = await runtime.snapshots.tags();
  const tagged = new Set(tags.values());
  for (const row of tables.snapshots.all()) {
    const isThere = ids.has(row.id);
    if (row.status === "ready" && isThere) {
      // the tag file was lost by damage (removing a tag also updates the row); without it the snapshot would be collected
      if (row.ephemeral === 0 && !tagged.has(row.id) && !tags.has(row.tag)) await runtime.snapshots.retag(row.id, row.tag);
      continue;
    }
    if (row.status === "writing" && row.announced === 1 && isThere) {
      if (!tagged.has(row.id)) await runtime.snapshots.retag(row.id, row.tag);
      db.transaction(() => {
        tables.snapshots.update(row.id, { status: "ready" });
        events.append({ type: "snapshot.ready", project: row.project, snapshot: row.tag });
      });
    } else if (row.status === "writing" && row.announced === 1) {
      const error = "the daemon ended while it was being written";
      db.transaction(() => {
        tables.snapshots.update(row.id, { status: "failed", error });
        events.append({ type: "snapshot.failed", project: row.project, snapshot: row.tag, reason: error });
      });
    } else if (row.status !== "failed" || nowUnix() - row.created_at > KEEP_FAILED_SECS) {
      await takeBack(core, row, isThere);
    }
  }
}

/** Removes a snapshot that was never announced, is missing on disk, or failed long ago */
async function takeBack({ db, tables, events, runtime, log }: Core, row: SnapshotRow, isThere: boolean): Promise<void> {
  if (isThere) {
    try {
      await runtime.removeSnapshot(row.id);
    } catch (error) {
      // an acknowledged sandbox uses it, so it is complete and must be kept
      if (!(error instanceof ForkdError) || error.code !== "IN_USE") throw error;
      log.warn({ tag: row.tag }, "a snapshot that was not acknowledged stays, something needs it");
      tables.snapshots.update(row.id, { status: "ready", ephemeral: 1 });
      return;
    }
  }
  db.transaction(() => {
    tables.snapshots.delete(row.id);
    events.append({ type: "snapshot.deleted", project: row.project, snapshot: row.tag, reason: "it was not complete, or is gone" });
  });
}
