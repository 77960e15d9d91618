// Registry of sandboxes: rows, journaled before a request is acknowledged, and their VMs.

import type { NewEvent, EventLog } from "../store/events.ts";
import type { Db } from "../store/db.ts";
import type { SandboxRow, Tables } from "../store/tables.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { EVERY_PROJECT, isOf, storedName } from "../store/project-names.ts";
import type { MoveStore } from "../store/moves.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import type { Viewer } from "./caller.ts";
import type { Quotas } from "./quotas.ts";

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
  /** set while its state goes to another node, which must get every change */
  isDeparting?: boolean | undefined;
  /** code of the node that has it now */
  movedTo?: string | undefined;
};

type Change = Partial<Omit<SandboxRow, "id">>;
type EventFacts = Omit<NewEvent, "project" | "sandbox" | "snapshot">;

/** Quotas that a sandbox in this state counts against */
const COUNTED = { running: ["sandboxes", "vcpus", "memory_mib"], suspended: ["suspended"] } as const;

/** Limit of records of ended and lost sandboxes */
const MAX_ENDED = 1000;

export class Registry {
  readonly #db: Db;
  readonly #table: Tables["sandboxes"];
  readonly #events: EventLog;
  readonly #quotas: Quotas;
  readonly #moves: Pick<MoveStore, "left"> | undefined;
  /** live and suspended sandboxes */
  readonly #lasting = new Map<string, Entry>();
  /** ended and lost sandboxes, in the order of their end */
  readonly #ended = new Map<string, Entry>();
  /** ids by name, which is unique in its project */
  readonly #names = new Map<string, string>();

  constructor(parts: { db: Db; tables: Tables; events: EventLog; quotas: Quotas; moves?: Pick<MoveStore, "left"> }) {
    this.#moves = parts.moves;
    this.#db = parts.db;
    this.#table = parts.tables.sandboxes;
    this.#events = parts.events;
    this.#quotas = parts.quotas;
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

  /** Of any project: for the daemon's own work */
  byId(id: string): Entry | undefined {
    return this.#lasting.get(id) ?? this.#ended.get(id);
  }

  /** By id or name. A sandbox of another project does not exist for the viewer */
  find(idOrName: string, { project }: Viewer): Entry | undefined {
    const entry = this.byId(idOrName) ?? this.byId(this.#names.get(storedName(idOrName, project)) ?? "");
    return entry && isOf(entry.row.project, project) ? entry : undefined;
  }

  /** Throws NOT_FOUND, or SANDBOX_MOVED with the node that has it */
  get(idOrName: string, viewer: Viewer): Entry {
    const entry = this.find(idOrName, viewer);
    if (entry) return entry;
    const left = this.#moves?.left(idOrName, viewer.project);
    if (left && isOf(left.project, viewer.project)) throw movedAway(left.id, left.node);
    const own = this.of(viewer).map(({ row }) => row);
    throw notFound("sandbox", idOrName, [...own.flatMap(({ name }) => name ?? []), ...own.map(({ id }) => id)]);
  }

  /** Those that the viewer may see, ended ones included */
  of({ project }: Viewer): Entry[] {
    return project === EVERY_PROJECT ? this.entries : this.entries.filter(({ row }) => row.project === project);
  }

  isNameTaken(name: string, viewer: Viewer): boolean {
    return this.find(name, viewer) !== undefined;
  }

  /** All or none; `alongside` runs in the same transaction */
  insert(pairs: readonly { row: SandboxRow; sandbox: Sandbox }[], event: EventFacts, alongside: () => void): void {
    this.#db.transaction(() => {
      for (const { row } of pairs) {
        this.#table.insert(row);
        this.#events.append({ ...event, ...factsOf(row), metadata: row.metadata });
      }
      for (const project of new Set(pairs.map(({ row }) => row.project))) this.#quotas.check(project, COUNTED.running);
      alongside();
    });
    for (const { row, sandbox } of pairs) this.#remember(row, sandbox);
  }

  change(entry: Entry, change: Change, event?: EventFacts): void {
    // work that started before the removal may complete after it
    if (this.byId(entry.row.id) !== entry) return;
    const { row } = entry;
    if (entry.isDeparting) throw new ForkdError("BUSY", `Cannot change sandbox ${row.id}: it is being moved to another node.`);
    this.#db.transaction(() => {
      this.#write(row, change, event);
      // one that is suspended or resumed takes a place of another kind
      if (change.state === "running" && row.state === "suspended") this.#quotas.check(row.project, COUNTED.running);
      if (change.state === "suspended") this.#quotas.check(row.project, COUNTED.suspended);
    });
    this.#apply(entry, change);
  }

  /** Records a change that has already happened: applied in memory immediately, stored when the disk allows */
  record(entry: Entry, change: Change, event?: EventFacts): void {
    if (this.byId(entry.row.id) !== entry) return;
    const { row } = entry;
    this.#db.eventually(() => this.#write(row, change, event));
    this.#apply(entry, change);
  }

  /** Removes an entry: in memory immediately, from the table when the disk allows */
  drop(entry: Entry, event: EventFacts): void {
    const { id } = entry.row;
    this.#db.eventually(() => {
      this.#table.delete(id);
      this.#events.append({ ...event, ...factsOf(entry.row) });
    });
    this.#lasting.delete(id);
    this.#ended.delete(id);
    this.#forgetName(entry.row);
  }

  /** A sandbox of another node, without a VM. It counts against no quota: it existed before */
  arrive(row: SandboxRow, event: EventFacts, alongside: () => void): Entry {
    this.#db.durably(() => {
      this.#table.delete(row.id);
      this.#table.insert(row);
      this.#events.append({ ...event, ...factsOf(row) });
      alongside();
    });
    this.#ended.delete(row.id);
    this.#remember(row, undefined);
    return this.get(row.id, row);
  }

  /** Another node has it from now on */
  leave(entry: Entry, to: string, event: EventFacts, alongside: () => void): void {
    const { row } = entry;
    this.#db.durably(() => {
      this.#table.delete(row.id);
      this.#events.append({ ...event, ...factsOf(row) });
      alongside();
    });
    entry.movedTo = to;
    this.#lasting.delete(row.id);
    this.#forgetName(row);
  }

  #write(row: SandboxRow, change: Change, event: EventFacts | undefined): void {
    this.#table.update(row.id, change);
    if (event) this.#events.append({ ...event, ...factsOf(row) });
  }

  #apply(entry: Entry, change: Change): void {
    if (change.name !== undefined) this.#forgetName(entry.row);
    entry.row = { ...entry.row, ...change };
    this.#rememberName(entry.row);
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
    this.#rememberName(row);
    if (hasEnded(row)) this.#keepEnded(entry);
    else this.#lasting.set(row.id, entry);
  }

  #rememberName({ id, name, project }: SandboxRow): void {
    if (name !== null) this.#names.set(storedName(name, project), id);
  }

  #forgetName({ name, project }: SandboxRow): void {
    if (name !== null) this.#names.delete(storedName(name, project));
  }
}

function factsOf({ id, project, snapshot_tag: snapshot }: SandboxRow): { project: string; sandbox: string; snapshot: string } {
  return { project, sandbox: id, snapshot };
}

export function movedAway(id: string, node: string): ForkdError {
  return new ForkdError("SANDBOX_MOVED", `Sandbox ${id} has moved to node ${node}.`, { details: { sandbox: id, node } });
}

function hasEnded({ state }: SandboxRow): boolean {
  return state === "ended" || state === "lost";
}

/** Resolves when no suspension or resumption is in progress; their caller gets the failure */
export async function afterTransition(entry: Entry): Promise<void> {
  while (entry.transition) await entry.transition.catch(() => undefined);
}
