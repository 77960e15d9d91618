// Access to sandboxes that came from other nodes: their access tokens and preview links stay valid.

import type { Db } from "./db.ts";

export type Access = {
  envd: string;
  traffic: string;
  /** digest of the creator's token, on which the two depend; another one here makes them void */
  maker: string;
  /** key of the sandbox's preview links */
  preview: string;
};

export class MovedAccess {
  readonly #db: Db;
  readonly #known = new Map<string, Access>();

  constructor(db: Db) {
    this.#db = db;
    db.run("DELETE FROM moved_access WHERE sandbox NOT IN (SELECT id FROM sandboxes) AND sandbox NOT IN (SELECT id FROM moves)");
    for (const row of db.all("SELECT sandbox, record FROM moved_access"))
      this.#known.set(String(row["sandbox"]), JSON.parse(String(row["record"])) as Access);
  }

  get(sandbox: string): Access | undefined {
    return this.#known.get(sandbox);
  }

  put(sandbox: string, access: Access): void {
    this.#db.durably(() =>
      this.#db.run("INSERT OR REPLACE INTO moved_access (sandbox, record) VALUES (?, ?)", sandbox, JSON.stringify(access)),
    );
    this.#known.set(sandbox, access);
  }

  delete(sandbox: string): void {
    if (this.#known.delete(sandbox)) this.#db.durably(() => this.#db.run("DELETE FROM moved_access WHERE sandbox = ?", sandbox));
  }
}
