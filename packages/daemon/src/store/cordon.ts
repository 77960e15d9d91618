// Whether the node is cordoned: it takes no forks. Kept over restarts, unless the daemon is leaving.

import type { Db } from "./db.ts";

const KEY = "cordoned";

export class Cordon {
  readonly #db: Db;
  #isSet: boolean;
  /** the daemon ends soon, and its VMs with it */
  isLeaving = false;

  constructor(db: Db) {
    this.#db = db;
    this.#isSet = db.get("SELECT value FROM meta WHERE key = ?", KEY) !== undefined;
  }

  get isSet(): boolean {
    return this.#isSet || this.isLeaving;
  }

  set(wanted: boolean): void {
    if (wanted === this.#isSet) return;
    this.#db.durably(() =>
      wanted ? this.#db.run("INSERT INTO meta (key, value) VALUES (?, ?)", KEY, "1") : this.#db.run("DELETE FROM meta WHERE key = ?", KEY),
    );
    this.#isSet = wanted;
  }
}
