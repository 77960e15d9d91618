// The sandboxes the daemon knows: rows that are journaled before anything is acknowledged, and the VMs behind them.

import type { NewEvent, EventLog } from "../store/events.ts";
import type { Db } from "../store/db.ts";
import type { SandboxRow, Tables } from "../store/tables.ts";
import { ForkdError } from "../errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export type Entry = {
  row: SandboxRow;
  /** undefined: it has ended or was lost */
  sandbox: Sandbox | undefined;
  /** requests that use it now */
  uses: number;
  /** milliseconds; the row's own is written now and then */
  lastActive: number;
  /** while it is being ended on request */
  removing: Promise<void> | undefined;
  /** while it falls asleep or wakes up */
  turning: Promise<void> | undefined;
};

type Change = Partial<Omit<SandboxRow, "id">>;
type EventFacts = Omit<NewEvent, "sandbox" | "snapshot">;

export class Registry {
  readonly #db: Db;
  readonly #table: Tables["sandboxes"];
  readonly #events: EventLog;
  readonly #entries = new Map<string, Entry>();
  readonly #names = new Map<string, string>();

  constructor(parts: { db: Db; tables: Tables; events: EventLog }) {
    this.#db = parts.db;
    this.#table = parts.tables.sandboxes;
    this.#events = parts.events;
    for (const row of this.#table.all()) this.#remember(row, undefined);
  }

  get entries(): Entry[] {
    return [...this.#entries.values()];
  }

  /** Those that can go on: live, or asleep */
  get lasting(): Entry[] {
    return this.entries.filter(({ row }) => row.state !== "ended" && row.state !== "lost");
  }

  /** Those that have a VM: they run or are paused */
  get live(): Entry[] {
    return this.entries.filter(({ row }) => row.state === "running" || row.state === "paused");
  }

  /** By id or name */
  find(idOrName: string): Entry | undefined {
    return this.#entries.get(idOrName) ?? this.#entries.get(this.#names.get(idOrName) ?? "");
  }

  /** Throws NOT_FOUND */
  get(idOrName: string): Entry {
    const entry = this.find(idOrName);
    if (!entry) throw new ForkdError("NOT_FOUND", `There is no sandbox ${idOrName}.`);
    return entry;
  }

  isNameTaken(name: string): boolean {
    return this.#names.has(name) || this.#entries.has(name);
  }

  /** All or none; `alongside` is part of the same transaction */
  insert(pairs: readonly { row: SandboxRow; sandbox: Sandbox }[], event: EventFacts, alongside: () => void): void {
    this.#db.transaction(() => {
      for (const { row } of pairs) {
        this.#table.insert(row);
        this.#events.append({ ...event, sandbox: row.id, snapshot: row.snapshot_tag, metadata: row.metadata });
      }
      alongside();
    });
    for (const { row, sandbox } of pairs) this.#remember(row, sandbox);
  }

  change(entry: Entry, change: Change, event?: EventFacts): void {
    // what was begun before it was removed may end after that
    if (this.#entries.get(entry.row.id) !== entry) return;
    this.#db.transaction(() => {
      this.#table.update(entry.row.id, change);
      if (event) this.#events.append({ ...event, sandbox: entry.row.id, snapshot: entry.row.snapshot_tag });
    });
    if (change.name !== undefined && entry.row.name !== null) this.#names.delete(entry.row.name);
    entry.row = { ...entry.row, ...change };
    if (entry.row.name !== null) this.#names.set(entry.row.name, entry.row.id);
  }

  drop(entry: Entry, event?: EventFacts): void {
    this.#db.transaction(() => {
      this.#table.delete(entry.row.id);
      if (event) this.#events.append({ ...event, sandbox: entry.row.id, snapshot: entry.row.snapshot_tag });
    });
    this.#entries.delete(entry.row.id);
    if (entry.row.name !== null) this.#names.delete(entry.row.name);
  }

  #remember(row: SandboxRow, sandbox: Sandbox | undefined): void {
    this.#entries.set(row.id, { row, sandbox, uses: 0, lastActive: row.last_active * 1000, removing: undefined, turning: undefined });
    if (row.name !== null) this.#names.set(row.name, row.id);
  }
}

/** Resolves when it neither falls asleep nor wakes up; whoever turns it hears of a failure */
export async function turned(entry: Entry): Promise<void> {
  while (entry.turning) await entry.turning.catch(() => undefined);
}
