// SQLite database of the daemon; the only importer of node:sqlite.

import { dirname } from "node:path";
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { ForkdError } from "@forkd/runtime/errors";
import { syncPath } from "@forkd/runtime/util/sync-path";
import { migrate } from "./migrations.ts";

export type Row = Record<string, unknown>;

/**
 * Exclusive to one process: the operating system releases the lock when the process ends. A committed transaction
 * survives a crash of the daemon; a power failure can lose the most recent ones, together with the VMs.
 */
export class Db {
  readonly #db: DatabaseSync;
  readonly #path: string;
  readonly #statements = new Map<string, StatementSync>();
  /** deferred transactions, oldest first */
  #unwritten: (() => void)[] = [];
  #depth = 0;

  constructor(path: string) {
    this.#path = path;
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

  /** Atomic; a nested call joins the outer transaction */
  transaction<V>(work: () => V): V {
    if (this.#depth > 0) return work();
    this.flush();
    return this.#transaction(work);
  }

  /**
   * Transaction that records an event that has already happened, such as the end of a VM. If the disk is not writable,
   * it is kept in memory and written before the next transaction; it is lost if the daemon ends first.
   */
  eventually(work: () => void): void {
    try {
      this.transaction(work);
    } catch (error) {
      if (!isUnwritable(error) || this.#depth > 0) throw error;
      this.#unwritten.push(work);
    }
  }

  /** Writes the deferred transactions; throws while the disk is not writable */
  flush(): void {
    for (let next = this.#unwritten[0]; next; next = this.#unwritten[0]) {
      this.#transaction(next);
      this.#unwritten.shift();
    }
  }

  #transaction<V>(work: () => V): V {
    this.#db.exec("BEGIN");
    this.#depth++;
    try {
      const value = work();
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      // errors such as a full disk roll back implicitly
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw asNoSpace(error);
    } finally {
      this.#depth--;
    }
  }

  /** Transaction that is synced before it returns, for changes that must survive a power failure */
  durably<V>(work: () => V): V {
    this.#db.exec("PRAGMA synchronous = FULL");
    try {
      return this.transaction(work);
    } finally {
      this.#db.exec("PRAGMA synchronous = NORMAL");
    }
  }

  /** Syncs all transactions so far, except deferred ones, without blocking the event loop */
  async sync(): Promise<void> {
    await syncPath(`${this.#path}-wal`);
    // the directory too: SQLite syncs it only together with this file
    await syncPath(dirname(this.#path));
  }

  close(): void {
    try {
      this.flush();
    } catch (error) {
      // deferred transactions are lost; the next daemon detects ended sandboxes itself
      if (!isUnwritable(error)) throw error;
    }
    this.#db.close();
  }

  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql) ?? this.#db.prepare(sql);
    this.#statements.set(sql, known);
    return known;
  }
}

/** Exclusive lock on a path, held until disposal or the end of the process */
export function lockFile(path: string): Disposable {
  const db = openLocked(path, []);
  return { [Symbol.dispose]: () => db.close() };
}

function openLocked(path: string, settings: readonly string[]): DatabaseSync {
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    // order matters: with EXCLUSIVE from the first access, WAL mode needs no shared-memory file
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
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
/** The disk is full, faulty or read-only; SQLite reports an exceeded quota as IOERR */
const UNWRITABLE = new Set([SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN]);

function asNoSpace(error: unknown): unknown {
  if ((error as { errcode?: number }).errcode !== SQLITE_FULL) return error;
  return new ForkdError("NO_SPACE", "Cannot store the change: the disk is full.", { cause: error });
}

/** Whether the error means that no write can succeed at the moment */
function isUnwritable(error: unknown): boolean {
  if (error instanceof ForkdError) return error.code === "NO_SPACE";
  const { errcode } = error as { errcode?: number };
  // the low byte of an extended result code is the primary code
  return errcode !== undefined && UNWRITABLE.has(errcode & 0xff);
}
