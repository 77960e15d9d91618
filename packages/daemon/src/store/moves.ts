// Moves to and from other nodes of the cluster, by the id of the sandbox or workspace.

import { storedName } from "./project-names.ts";
import type { Db, Row } from "./db.ts";

/**
 * `departing`: still here, and suspended for its move; `left`: another node has it; `arriving`: received, but it belongs to
 * the other node until that one has given it up
 */
export type MoveKind = "departing" | "left" | "arriving";

export type Move<R = unknown> = { id: string; project: string; name: string | null; node: string; record: R; at: number };

/** Where sandboxes have gone is kept for so many; a gateway finds others by asking all nodes */
const MAX_LEFT = 100_000;

export class MoveStore {
  readonly #db: Db;
  /** in memory: each request that finds no sandbox looks here */
  readonly #left = new Map<string, Move>();
  readonly #names = new Map<string, string>();

  constructor(db: Db) {
    this.#db = db;
    for (const row of db.all("SELECT * FROM moves WHERE kind = 'left' ORDER BY at")) this.#remember(moveOf(row));
  }

  /** A sandbox or workspace that was here, by id, or by its name in the project */
  left(idOrName: string, project: string): Move | undefined {
    return this.#left.get(idOrName) ?? this.#left.get(this.#names.get(storedName(idOrName, project)) ?? "");
  }

  get<R>(kind: MoveKind, id: string): Move<R> | undefined {
    const row = this.#db.get("SELECT * FROM moves WHERE kind = ? AND id = ?", kind, id);
    return row && moveOf<R>(row);
  }

  all<R>(kind: MoveKind): Move<R>[] {
    return this.#db.all("SELECT * FROM moves WHERE kind = ? ORDER BY at", kind).map((row) => moveOf<R>(row));
  }

  put(kind: MoveKind, move: Move): void {
    const { id, project, name, node, record, at } = move;
    this.#db.run(
      "INSERT OR REPLACE INTO moves (id, kind, project, name, node, record, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
      id,
      kind,
      project,
      name,
      node,
      JSON.stringify(record),
      at,
    );
    if (kind !== "left") return;
    this.#remember(move);
    const [oldest] = this.#left.keys();
    if (this.#left.size > MAX_LEFT && oldest !== undefined) this.delete("left", oldest);
  }

  delete(kind: MoveKind, id: string): void {
    this.#db.run("DELETE FROM moves WHERE kind = ? AND id = ?", kind, id);
    const known = kind === "left" ? this.#left.get(id) : undefined;
    if (!known) return;
    this.#left.delete(id);
    if (known.name !== null) this.#names.delete(storedName(known.name, known.project));
  }

  #remember(move: Move): void {
    this.#left.delete(move.id);
    this.#left.set(move.id, move);
    if (move.name !== null) this.#names.set(storedName(move.name, move.project), move.id);
  }
}

function moveOf<R>(row: Row): Move<R> {
  return {
    id: String(row["id"]),
    project: String(row["project"]),
    name: row["name"] as string | null,
    node: String(row["node"]),
    record: JSON.parse(String(row["record"])) as R,
    at: Number(row["at"]),
  };
}
