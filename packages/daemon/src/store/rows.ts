// Table access with rows as objects; JSON columns are parsed.

import type { SQLInputValue } from "node:sqlite";
import type { Db, Row } from "./db.ts";

/** A table with rows of type T; `json`: columns that contain JSON */
export class Table<T extends Record<string, unknown>> {
  readonly #db: Db;
  readonly #name: string;
  readonly #key: string;
  readonly #json: ReadonlySet<string>;

  constructor(db: Db, name: string, opts: { key: string; json: readonly (keyof T & string)[] }) {
    this.#db = db;
    this.#name = name;
    this.#key = opts.key;
    this.#json = new Set(opts.json);
  }

  insert(row: T): void {
    const columns = Object.keys(row);
    const places = columns.map(() => "?").join(", ");
    this.#db.run(
      `INSERT INTO ${this.#name} (${columns.join(", ")}) VALUES (${places})`,
      ...columns.map((column) => this.#toSql(column, row[column])),
    );
  }

  update(key: string, changes: Partial<T>): void {
    const columns = Object.keys(changes);
    if (columns.length === 0) return;
    const sets = columns.map((column) => `${column} = ?`).join(", ");
    const values = columns.map((column) => this.#toSql(column, changes[column]));
    this.#db.run(`UPDATE ${this.#name} SET ${sets} WHERE ${this.#key} = ?`, ...values, key);
  }

  get(key: string): T | undefined {
    const row = this.#db.get(`SELECT * FROM ${this.#name} WHERE ${this.#key} = ?`, key);
    return row && this.#parse(row);
  }

  /** Rows with the value in the column */
  where(column: keyof T & string, value: SQLInputValue): T[] {
    return this.#db.all(`SELECT * FROM ${this.#name} WHERE ${column} = ?`, value).map((row) => this.#parse(row));
  }

  all(): T[] {
    return this.#db.all(`SELECT * FROM ${this.#name} ORDER BY created_at, ${this.#key}`).map((row) => this.#parse(row));
  }

  delete(key: string): boolean {
    return this.#db.run(`DELETE FROM ${this.#name} WHERE ${this.#key} = ?`, key) > 0;
  }

  #toSql(column: string, value: unknown): SQLInputValue {
    if (this.#json.has(column)) return JSON.stringify(value);
    return typeof value === "boolean" ? Number(value) : (value as SQLInputValue);
  }

  #parse(row: Row): T {
    const parsed: Row = { ...row };
    for (const column of this.#json) parsed[column] = JSON.parse(String(row[column]));
    return parsed as T;
  }
}
