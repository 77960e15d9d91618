// What a daemon that starts finds of its predecessor: sandboxes to adopt, and half-made things to end.

import { ForkdError } from "../errors.ts";
import { bootId } from "../util/boot-id.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { SnapshotRow } from "../store/tables.ts";
import { nowUnix, type Core } from "./core.ts";
import { hostLimits } from "./limit-fields.ts";
import type { Entry, Registry } from "./registry.ts";

const AT_ONCE = 8;
const KEEP_FAILED_SECS = 24 * 3600;

export type Adopted = { adopted: number; lost: number; ended: number };

/** Every sandbox that was acknowledged is adopted, or marked with the reason why it is no more; nothing else stays */
export async function adoptAll(core: Core, registry: Registry): Promise<Adopted> {
  const boot = await bootId();
  const turns = new Semaphore(AT_ONCE);
  let lost = 0;
  const entries = registry.live;
  await Promise.all(
    entries.map(async (entry) =>
      turns.run(async () => {
        const reason = entry.row.boot_id === boot ? await adopt(core, entry) : "the host was restarted";
        if (reason === undefined) {
          registry.change(entry, {}, { type: "sandbox.adopted" });
          return;
        }
        lost++;
        registry.change(entry, { state: "lost", reason, name: null, last_active: nowUnix() }, { type: "sandbox.lost", reason });
      }),
    ),
  );
  const ended = await core.runtime.endOthers();
  await settleSnapshots(core);
  return { adopted: entries.length - lost, lost, ended };
}

/** The reason why it is no more */
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
    });
    if (typeof adopted === "string") return adopted;
    entry.sandbox = adopted;
    // what was under way in it may have kept it in use all the time
    entry.lastActive = Date.now();
    return undefined;
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    log.warn({ sandbox: row.id, err: error }, "a sandbox could not be adopted");
    return error.message;
  }
}

/**
 * What was still being written is taken back, complete or not, unless a client was told of it: then it gets the name it was
 * made for, or stays as failed.
 */
async function settleSnapshots(core: Core): Promise<void> {
  const { db, tables, events, runtime } = core;
  const ids = new Set(await runtime.snapshots.ids());
  const tagged = new Set((await runtime.snapshots.tags()).values());
  for (const row of tables.snapshots.all()) {
    const isThere = ids.has(row.id);
    if (row.status === "ready" && isThere) continue;
    if (row.status === "writing" && row.told === 1 && isThere) {
      if (!tagged.has(row.id)) await runtime.snapshots.retag(row.id, row.tag);
      db.transaction(() => {
        tables.snapshots.update(row.id, { status: "ready" });
        events.append({ type: "snapshot.ready", snapshot: row.tag });
      });
    } else if (row.status === "writing" && row.told === 1) {
      const error = "the daemon ended while it was being written";
      db.transaction(() => {
        tables.snapshots.update(row.id, { status: "failed", error });
        events.append({ type: "snapshot.failed", snapshot: row.tag, reason: error });
      });
    } else if (row.status !== "failed" || nowUnix() - row.created_at > KEEP_FAILED_SECS) {
      await takeBack(core, row, isThere);
    }
  }
}

/** Nobody was told of it, or it is gone already, or failed long ago */
async function takeBack({ db, tables, events, runtime, log }: Core, row: SnapshotRow, isThere: boolean): Promise<void> {
  if (isThere) {
    try {
      await runtime.removeSnapshot(row.id);
    } catch (error) {
      // a sandbox of it was acknowledged, so it was complete and is needed
      if (!(error instanceof ForkdError) || error.code !== "IN_USE") throw error;
      log.warn({ tag: row.tag }, "a snapshot that was not acknowledged stays, something needs it");
      tables.snapshots.update(row.id, { status: "ready", ephemeral: 1 });
      return;
    }
  }
  db.transaction(() => {
    tables.snapshots.delete(row.id);
    events.append({ type: "snapshot.deleted", snapshot: row.tag, reason: "it was not complete, or is gone" });
  });
}
