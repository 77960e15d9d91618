// The one database of a daemon, and the only importer of node:sqlite.

import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { ForkdError } from "../errors.ts";
import { migrate } from "./migrations.ts";

export type Row = Record<string, unknown>;

/**
 * Opened by one process at a time: the lock is the operating system's and goes with the process, however it ends. What a
 * transaction has written is there after any crash of the daemon; a power cut may take the last moments, and with it the VMs.
 */
export class Db {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;

  constructor(path: string) {
    this.#db = openLocked(path, ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA foreign_keys = ON"]);
    this.transaction(() => migrate(this));
  }

  run(sql: string, ...values: SQLInputValue[]): number {
    try {
      return Number(this.#prepare(sql).run(...values).changes);
    } catch (error) {
      throw asNoSpace(error);
    }
  }

  get(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#prepare(sql).get(...values);
  }

  all(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#prepare(sql).all(...values);
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** All or nothing; one inside another belongs to the outer one */
  transaction<V>(work: () => V): V {
    if (this.#depth > 0) return work();
    this.#db.exec("BEGIN");
    this.#depth++;
    try {
      const value = work();
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      // an error such as a full disk ends the transaction by itself
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw asNoSpace(error);
    } finally {
      this.#depth--;
    }
  }

  /** A transaction that is on disk when it returns, for what must outlive a power cut */
  durably<V>(work: () => V): V {
    this.#db.exec("PRAGMA synchronous = FULL");
    try {
      return this.transaction(work);
    } finally {
      this.#db.exec("PRAGMA synchronous = NORMAL");
    }
  }

  close(): void {
    this.#db.close();
  }

  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql) ?? this.#db.prepare(sql);
    this.#statements.set(sql, known);
    return known;
  }
}

/** Keeps others out of a folder as long as this process lives, or until it is closed; needs no more than a file */
export function lockFile(path: string): Disposable {
  const db = openLocked(path, []);
  return { [Symbol.dispose]: () => db.close() };
}

function openLocked(path: string, settings: readonly string[]): DatabaseSync {
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    // in this order: a database that is locked from its first use on needs no shared memory beside it
    for (const sql of ["PRAGMA locking_mode = EXCLUSIVE", ...settings, "BEGIN EXCLUSIVE", "COMMIT"]) db.exec(sql);
    return db;
  } catch (error) {
    db.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY)
      throw new ForkdError("DAEMON_RUNNING", `Cannot start: another daemon uses ${path}.`);
    throw asNoSpace(error);
  }
}

const SQLITE_BUSY = 5;
const SQLITE_FULL = 13;

function asNoSpace(error: unknown): unknown {
  if ((error as { errcode?: number }).errcode !== SQLITE_FULL) return error;
  return new ForkdError("NO_SPACE", "Cannot write this down: the disk is full.", { cause: error });
}
