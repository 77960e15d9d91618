// Stored responses for the Idempotency-Key: kept for a day, bounded per client.

import type { Db } from "./db.ts";

const KEEP_SECS = 24 * 3600;
/** Limit per client; above it the oldest tenth is removed */
const MAX_ANSWERS = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

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

  find(principal: string, key: string): Remembered | null {
    const row = this.#db.get(
      "SELECT request_hash, status, body FROM idempotency WHERE principal = ? AND key = ? AND created_at > ?",
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

  begin(principal: string, key: string, requestHash: Buffer): void {
    this.#db.run(
      "INSERT OR REPLACE INTO idempotency (principal, key, request_hash, created_at) VALUES (?, ?, ?, ?)",
      principal,
      key,
      requestHash,
      this.#now(),
    );
    this.#count(principal, { answers: 1, bytes: 0 });
  }

  /** Keeps an existing response: one that was stored together with a creation is not overwritten */
  finish(principal: string, key: string, answer: { status: number; body: string }): void {
    this.#db.run(
      "UPDATE idempotency SET status = ?, body = ? WHERE principal = ? AND key = ? AND status IS NULL",
      answer.status,
      answer.body,
      principal,
      key,
    );
    this.#count(principal, { answers: 0, bytes: answer.body.length });
  }

  /** Removes the key after a failure, unless a response is stored */
  forget(principal: string, key: string): void {
    this.#db.run("DELETE FROM idempotency WHERE principal = ? AND key = ? AND status IS NULL", principal, key);
  }

  prune(): number {
    this.#held.clear();
    return this.#db.run("DELETE FROM idempotency WHERE created_at <= ?", this.#now() - KEEP_SECS);
  }

  /** Upper bound only: replaced and removed responses are recounted when the limit is reached */
  #count(principal: string, more: Held): void {
    const held = this.#held.get(principal) ?? this.#look(principal);
    this.#held.set(principal, held);
    held.answers += more.answers;
    held.bytes += more.bytes;
    if (held.answers > MAX_ANSWERS || held.bytes > MAX_BYTES) this.#dropOldest(principal);
  }

  #look(principal: string): Held {
    const row = this.#db.get(
      "SELECT count(*) AS answers, coalesce(sum(length(body)), 0) AS bytes FROM idempotency WHERE principal = ?",
      principal,
    );
    return { answers: Number(row?.["answers"] ?? 0), bytes: Number(row?.["bytes"] ?? 0) };
  }

  /** Keeps requests without a response: they are in progress, or their repetition must get OUTCOME_UNKNOWN */
  #dropOldest(principal: string): void {
    const kept = { answers: 0, bytes: 0 };
    const rows = this.#db.all(
      "SELECT key, status, coalesce(length(body), 0) AS bytes FROM idempotency WHERE principal = ? ORDER BY created_at DESC, rowid DESC",
      principal,
    );
    for (const row of rows) {
      const bytes = Number(row["bytes"]);
      const isRoom = kept.answers < MAX_ANSWERS * 0.9 && kept.bytes + bytes <= MAX_BYTES * 0.9;
      if (!isRoom && row["status"] !== null) {
        this.#db.run("DELETE FROM idempotency WHERE principal = ? AND key = ?", principal, row["key"] as string);
        continue;
      }
      kept.answers++;
      kept.bytes += bytes;
    }
    this.#held.set(principal, kept);
  }
}
