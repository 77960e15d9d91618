// Code of the node: random, made once per store. Ids that the node makes begin with it, so that a gateway finds the node
// of a sandbox by its id alone.

import { newNodeCode } from "@forkd/runtime/util/id";
import type { Db } from "./db.ts";

const KEY = "node_code";

export function nodeCodeOf(db: Db): string {
  const known = db.get("SELECT value FROM meta WHERE key = ?", KEY);
  if (known) return String(known["value"]);
  const code = newNodeCode();
  db.durably(() => db.run("INSERT INTO meta (key, value) VALUES (?, ?)", KEY, code));
  return code;
}
