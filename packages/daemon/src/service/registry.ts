// Registry of sandboxes: rows, journaled before a request is acknowledged, and their VMs.

import type { NewEvent, EventLog } from "../store/events.ts";
import type { Db } from "../store/db.ts";
import type { SandboxRow, Tables } from "../store/tables.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { notFound } from "@forkd/runtime/util/not-found";

export type Entry = {
  row: SandboxRow;
  /** undefined: no VM (ended, lost, suspended, or not adopted yet) */
  sandbox: Sandbox | undefined;
  /** number of leases */
  uses: number;
  /** in milliseconds; the row's value is updated only periodically */
  lastActive: number;
  /** set while a request ends it */
  removing: Promise<void> | undefined;
  /** set while it is being suspended or resumed */
  transition: Promise<void> | undefined;
};

type Change = Partial<Omit<SandboxRow, "id">>;
type EventFacts = Omit<NewEvent, "sandbox" | "snapshot">;

/** Limit of records of ended and lost sandboxes */
const MAX_ENDED = 1000;

export class Registry {
  readonly #db: Db;
  readonly #table: Tables["sandboxes"];
  readonly #events: EventLog;
  /** live and suspended sandboxes */
  readonly #lasting = new Map<string, Entry>();
  /** ended and lost sandboxes, in the order of their end */
  readonly #ended = new Map<string, Entry>();
  readonly #names = new Map<string, string>();

  constructor(parts: { db: Db; tables: Tables; events: EventLog }) {
    this.#db = parts.db;
    this.#table = parts.tables.sandboxes;
    this.#events = parts.events;
    const rows = this.#table.all();
    for (const row of rows.toSorted((a, b) => a.last_active - b.last_active)) this.#remember(row, undefined);
  }

  get entries(): Entry[] {
    return [...this.#lasting.values(), ...this.#ended.values()];
  }

  /** Live and suspended sandboxes */
  get lasting(): Entry[] {
    return [...this.#lasting.values()];
  }

  /** Ended and lost sandboxes, in the order of their end */
  get ended(): Entry[] {
    return [...this.#ended.values()];
  }

  /** Sandboxes with a VM: running or paused */
  get live(): Entry[] {
    return this.lasting.filter(({ row }) => row.state === "running" || row.state === "paused");
  }

  /** By id or name */
  find(idOrName: string): Entry | undefined {
    const byId = (id: string): Entry | undefined => this.#lasting.get(id) ?? this.#ended.get(id);
    return byId(idOrName) ?? byId(this.#names.get(idOrName) ?? "");
  }

  /** Throws NOT_FOUND */
  get(idOrName: string): Entry {
    const entry = this.find(idOrName);
    if (!entry) throw notFound("sandbox", idOrName, [...this.#names.keys(), ...this.#lasting.keys(), ...this.#ended.keys()]);
    return entry;
  }

  isNameTaken(name: string): boolean {
    return this.find(name) !== undefined;
  }

  /** All or none; `alongside` runs in the same transaction */
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
    // work that started before the removal may complete after it
    if (this.find(entry.row.id) !== entry) return;
    this.#db.transaction(() => this.#write(entry.row, change, event));
    this.#apply(entry, change);
  }

  /** Records a change that has already happened: applied in memory immediately, stored when the disk allows */
  record(entry: Entry, change: Change, event?: EventFacts): void {
    if (this.find(entry.row.id) !== entry) return;
    const { row } = entry;
    this.#db.eventually(() => this.#write(row, change, event));
    this.#apply(entry, change);
  }

  /** Removes an entry: in memory immediately, from the table when the disk allows */
  drop(entry: Entry, event: EventFacts): void {
    const { id, name, snapshot_tag: snapshot } = entry.row;
    this.#db.eventually(() => {
      this.#table.delete(id);
      this.#events.append({ ...event, sandbox: id, snapshot });
    });
    this.#lasting.delete(id);
    this.#ended.delete(id);
    if (name !== null) this.#names.delete(name);
  }

  #write(row: SandboxRow, change: Change, event: EventFacts | undefined): void {
    this.#table.update(row.id, change);
    if (event) this.#events.append({ ...event, sandbox: row.id, snapshot: row.snapshot_tag });
  }

  #apply(entry: Entry, change: Change): void {
    if (change.name !== undefined && entry.row.name !== null) this.#names.delete(entry.row.name);
    entry.row = { ...entry.row, ...change };
    if (entry.row.name !== null) this.#names.set(entry.row.name, entry.row.id);
    if (hasEnded(entry.row) && this.#lasting.delete(entry.row.id)) this.#keepEnded(entry);
  }

  /** Bounds the records of ended sandboxes, because guests and clients control their number. Drops the oldest */
  #keepEnded(entry: Entry): void {
    this.#ended.set(entry.row.id, entry);
    const [oldest] = this.#ended.values();
    if (this.#ended.size > MAX_ENDED && oldest) this.drop(oldest, { type: "sandbox.deleted", reason: "many others have ended since" });
  }

  #remember(row: SandboxRow, sandbox: Sandbox | undefined): void {
    const entry = { row, sandbox, uses: 0, lastActive: row.last_active * 1000, removing: undefined, transition: undefined };
    if (row.name !== null) this.#names.set(row.name, row.id);
    if (hasEnded(row)) this.#keepEnded(entry);
    else this.#lasting.set(row.id, entry);
  }
}

function hasEnded({ state }: SandboxRow): boolean {
  return state === "ended" || state === "lost";
}

/** Resolves when no suspension or resumption is in progress; their caller gets the failure */
export async function afterTransition(entry: Entry): Promise<void> {
  while (entry.transition) await entry.transition.catch(() => undefined);
}
