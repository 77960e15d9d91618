// What a daemon that starts finds of its predecessor: sandboxes to adopt, and half-made things to end.

import { ForkdError } from "../errors.ts";
import { bootId } from "../util/boot-id.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { Core } from "./core.ts";
import type { Entry, Registry } from "./registry.ts";

const AT_ONCE = 8;

export type Adopted = { adopted: number; lost: number; ended: number };

/** Every sandbox that was acknowledged is adopted, or marked with the reason why it is no more; nothing else stays */
export async function adoptAll(core: Core, registry: Registry): Promise<Adopted> {
  settleSnapshots(core, new Set(await core.runtime.snapshots.ids()));
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
        registry.change(entry, { state: "lost", reason, name: null }, { type: "sandbox.lost", reason });
      }),
    ),
  );
  return { adopted: entries.length - lost, lost, ended: await core.runtime.endOthers() };
}

/** The reason why it is no more */
async function adopt({ runtime, log }: Core, entry: Entry): Promise<string | undefined> {
  const { row } = entry;
  try {
    const adopted = await runtime.adopt({
      id: row.id,
      process: { pid: row.pid, startTime: row.start_time },
      snapshot: await runtime.snapshots.get(row.snapshot_id),
      paused: row.state === "paused",
      env: row.env,
      certificate: row.certificate,
      forkMs: row.fork_ms,
      createdAt: new Date(row.created_at * 1000),
    });
    if (typeof adopted === "string") return adopted;
    entry.sandbox = adopted;
    return undefined;
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    log.warn({ sandbox: row.id, err: error }, "a sandbox could not be adopted");
    return error.message;
  }
}

/** A snapshot is complete when its folder has its name; one that was still being written is not, and nothing of it remains */
function settleSnapshots({ db, tables, events }: Core, ids: ReadonlySet<string>): void {
  db.transaction(() => {
    for (const row of tables.snapshots.all()) {
      if (row.status === "writing" && ids.has(row.id)) {
        tables.snapshots.update(row.id, { status: "ready" });
        events.append({ type: "snapshot.ready", snapshot: row.tag });
      } else if (row.status === "writing") {
        const error = "the daemon ended while it was being written";
        tables.snapshots.update(row.id, { status: "failed", error });
        events.append({ type: "snapshot.failed", snapshot: row.tag, reason: error });
      } else if (row.status === "ready" && !ids.has(row.id)) {
        // somebody removed it while no daemon was running
        tables.snapshots.delete(row.id);
      }
    }
  });
}
