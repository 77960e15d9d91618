// Stored responses for the Idempotency-Key: kept for a day, bounded per client.

import type { Db } from "./db.ts";

const KEEP_SECS = 24 * 3600;
/** Limit per client; above it the oldest tenth is removed */
const MAX_ANSWERS = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** A token, in the project that it acts in */
export type Client = { project: string; principal: string };

type Held = { answers: number; bytes: number };

export type Remembered = {
  requestHash: Buffer;
  /** null: the request started, but its result was never stored */
  answer: { status: number; body: string } | null;
};

export class IdempotencyStore {
  readonly #db: Db;
  readonly #now: () => number;
  /** counters by client, loaded on first use */
  readonly #held = new Map<string, Held>();

  constructor(db: Db, opts: { nowMs?: () => number } = {}) {
    this.#db = db;
    const nowMs = opts.nowMs ?? Date.now;
    this.#now = () => Math.floor(nowMs() / 1000);
  }

  find({ project, principal }: Client, key: string): Remembered | null {
    const row = this.#db.get(
      "SELECT request_hash, status, body FROM idempotency WHERE project = ? AND principal = ? AND key = ? AND created_at > ?",
      project,
      principal,
      key,
      this.#now() - KEEP_SECS,
    );
    if (!row) return null;
    const status = row["status"] as number | null;
    return {
      requestHash: Buffer.from(row["request_hash"] as Uint8Array),
      answer: status === null ? null : { status, body: row["body"] as string },
    };
  }

  begin({ project, principal }: Client, key: string, requestHash: Buffer): void {
    this.#db.run(
      "INSERT OR REPLACE INTO idempotency (project, principal, key, request_hash, created_at) VALUES (?, ?, ?, ?, ?)",
      project,
      principal,
      key,
      requestHash,
      this.#now(),
    );
    this.#count({ project, principal }, { answers: 1, bytes: 0 });
  }

  /** Keeps an existing response: one that was stored together with a creation is not overwritten */
  finish({ project, principal }: Client, key: string, answer: { status: number; body: string }): void {
    this.#db.run(
      "UPDATE idempotency SET status = ?, body = ? WHERE project = ? AND principal = ? AND key = ? AND status IS NULL",
      answer.status,
      answer.body,
      project,
      principal,
      key,
    );
    this.#count({ project, principal }, { answers: 0, bytes: answer.body.length });
  }

  /** Removes the key after a failure, unless a response is stored */
  forget({ project, principal }: Client, key: string): void {
    this.#db.run("DELETE FROM idempotency WHERE project = ? AND principal = ? AND key = ? AND status IS NULL", project, principal, key);
  }

  prune(): number {
    this.#held.clear();
    return this.#db.run("DELETE FROM idempotency WHERE created_at <= ?", this.#now() - KEEP_SECS);
  }

  /** Upper bound only: replaced and removed responses are recounted when the limit is reached */
  #count(client: Client, more: Held): void {
    const held = this.#held.get(keyOf(client)) ?? this.#look(client);
    this.#held.set(keyOf(client), held);
    held.answers += more.answers;
    held.bytes += more.bytes;
    if (held.answers > MAX_ANSWERS || held.bytes > MAX_BYTES) this.#dropOldest(client);
  }

  #look({ project, principal }: Client): Held {
    const row = this.#db.get(
      "SELECT count(*) AS answers, coalesce(sum(length(body)), 0) AS bytes FROM idempotency WHERE project = ? AND principal = ?",
      project,
      principal,
    );
    return { answers: Number(row?.["answers"] ?? 0), bytes: Number(row?.["bytes"] ?? 0) };
  }

  /** Keeps requests without a response: they are in progress, or their repetition must get OUTCOME_UNKNOWN */
  #dropOldest({ project, principal }: Client): void {
    const kept = { answers: 0, bytes: 0 };
    const rows = this.#db.all(
      "SELECT key, status, coalesce(length(body), 0) AS bytes FROM idempotency WHERE project = ? AND principal = ? ORDER BY created_at DESC, rowid DESC",
      project,
      principal,
    );
    for (const row of rows) {
      const bytes = Number(row["bytes"]);
      const isRoom = kept.answers < MAX_ANSWERS * 0.9 && kept.bytes + bytes <= MAX_BYTES * 0.9;
      if (!isRoom && row["status"] !== null) {
        this.#db.run("DELETE FROM idempotency WHERE project = ? AND principal = ? AND key = ?", project, principal, row["key"] as string);
        continue;
      }
      kept.answers++;
      kept.bytes += bytes;
    }
    this.#held.set(keyOf({ project, principal }), kept);
  }
}

function keyOf({ project, principal }: Client): string {
  return `${project}\n${principal}`;
}
