// Event journal: state changes in order, kept for a limited time so that a client can resume.

import type { Event, EventType } from "../api/daemon.ts";
import type { Db, Row } from "./db.ts";
import { DEFAULT_PROJECT, EVERY_PROJECT, shownName } from "./project-names.ts";

const KEEP = 10_000;
/** pruning interval, in events */
const PRUNE_EVERY = 500;

/** `project` null: an event of the daemon, which every project sees. Tags are as they are stored */
export type NewEvent = {
  type: EventType;
  project: string | null;
  sandbox?: string | null;
  snapshot?: string | null;
  principal?: string | null;
  reason?: string | null;
  metadata?: Record<string, string> | null;
};

export class EventLog {
  readonly #db: Db;
  readonly #listeners = new Set<() => void>();

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Call inside the transaction of the change, so that both are stored or neither. Listeners are only notified: they
   * read events from the table, which a rolled-back transaction does not change.
   */
  append({ type, project, sandbox = null, snapshot = null, principal = null, reason = null, metadata = null }: NewEvent): void {
    const time = Date.now();
    const values = [time, type, project, sandbox, snapshot, principal, reason, metadata && JSON.stringify(metadata)];
    this.#db.run(
      "INSERT INTO events (time, type, project, sandbox, snapshot, principal, reason, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      ...values,
    );
    const id = this.lastId;
    if (id % PRUNE_EVERY === 0) this.#db.run("DELETE FROM events WHERE id <= ?", id - KEEP);
    queueMicrotask(() => {
      for (const listener of this.#listeners) listener();
    });
  }

  get lastId(): number {
    return Number(this.#db.get("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?.["seq"] ?? 0);
  }

  /** Events of the project after `since`, in order */
  list(project: string, { since = 0, limit = KEEP }: { since?: number | undefined; limit?: number | undefined } = {}): Event[] {
    const rows =
      project === EVERY_PROJECT
        ? this.#db.all("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", since, limit)
        : this.#db.all("SELECT * FROM events WHERE id > ? AND (project = ? OR project IS NULL) ORDER BY id LIMIT ?", since, project, limit);
    return rows.map(eventOf);
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

function eventOf(row: Row): Event {
  const project = row["project"] as string | null;
  const snapshot = row["snapshot"] as string | null;
  return {
    id: Number(row["id"]),
    time: new Date(Number(row["time"])).toISOString(),
    type: row["type"] as EventType,
    project,
    sandbox: row["sandbox"] as string | null,
    snapshot: snapshot && shownName(snapshot, project ?? DEFAULT_PROJECT),
    principal: row["principal"] as string | null,
    reason: row["reason"] as string | null,
    metadata: row["metadata"] === null ? null : (JSON.parse(row["metadata"] as string) as Record<string, string>),
  };
}
