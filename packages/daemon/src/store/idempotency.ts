// Answers to requests that may come again, kept for a day.

import type { Db } from "./db.ts";

const KEEP_SECS = 24 * 3600;

export type Remembered = {
  requestHash: Buffer;
  /** null: the request began, and nobody wrote down how it ended */
  answer: { status: number; body: string } | null;
};

export class IdempotencyStore {
  readonly #db: Db;
  readonly #now: () => number;

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
  }

  /** The first answer stays: what was written down together with a creation is not written again */
  finish(principal: string, key: string, answer: { status: number; body: string }): void {
    this.#db.run(
      "UPDATE idempotency SET status = ?, body = ? WHERE principal = ? AND key = ? AND status IS NULL",
      answer.status,
      answer.body,
      principal,
      key,
    );
  }

  /** After a failure; an answer that is there already stays */
  forget(principal: string, key: string): void {
    this.#db.run("DELETE FROM idempotency WHERE principal = ? AND key = ? AND status IS NULL", principal, key);
  }

  prune(): number {
    return this.#db.run("DELETE FROM idempotency WHERE created_at <= ?", this.#now() - KEEP_SECS);
  }
}
