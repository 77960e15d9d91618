// Event journal: state changes in order, kept for a limited time so that a client can resume.

import type { Event, EventType } from "../api/daemon.ts";
import type { Db, Row } from "./db.ts";

const KEEP = 10_000;
/** pruning interval, in events */
const PRUNE_EVERY = 500;

export type NewEvent = {
  type: EventType;
  sandbox?: string | null;
  snapshot?: string | null;
  principal?: string | null;
  reason?: string | null;
  metadata?: Record<string, string> | null;
};

export class EventLog {
  readonly #db: Db;
  readonly #listeners = new Set<(event: Event) => void>();

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Call inside the transaction of the change, so that both are stored or neither. Listeners are only notified: they
   * read events from the table, which a rolled-back transaction does not change.
   */
  append({ type, sandbox = null, snapshot = null, principal = null, reason = null, metadata = null }: NewEvent): void {
    const time = Date.now();
    const values = [time, type, sandbox, snapshot, principal, reason, metadata && JSON.stringify(metadata)];
    this.#db.run("INSERT INTO events (time, type, sandbox, snapshot, principal, reason, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)", ...values);
    const id = this.lastId;
    if (id % PRUNE_EVERY === 0) this.#db.run("DELETE FROM events WHERE id <= ?", id - KEEP);
    const event: Event = { id, time: new Date(time).toISOString(), type, sandbox, snapshot, principal, reason, metadata };
    queueMicrotask(() => {
      for (const listener of this.#listeners) listener(event);
    });
  }

  get lastId(): number {
    return Number(this.#db.get("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?.["seq"] ?? 0);
  }

  /** Events after `since`, in order */
  list({ since = 0, limit = KEEP }: { since?: number | undefined; limit?: number | undefined } = {}): Event[] {
    return this.#db.all("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", since, limit).map(eventOf);
  }

  subscribe(listener: (event: Event) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

function eventOf(row: Row): Event {
  return {
    id: Number(row["id"]),
    time: new Date(Number(row["time"])).toISOString(),
    type: row["type"] as EventType,
    sandbox: row["sandbox"] as string | null,
    snapshot: row["snapshot"] as string | null,
    principal: row["principal"] as string | null,
    reason: row["reason"] as string | null,
    metadata: row["metadata"] === null ? null : (JSON.parse(row["metadata"] as string) as Record<string, string>),
  };
}
