// Signing keys of the daemon: generated once, never exposed.

import { randomBytes } from "node:crypto";
import type { Db } from "./db.ts";

const KEY_BYTES = 32;

export function secretOf(db: Db, name: "preview_key" | "e2b_key"): Buffer {
  const known = db.get("SELECT value FROM meta WHERE key = ?", name);
  if (known) return Buffer.from(String(known["value"]), "base64url");
  const key = randomBytes(KEY_BYTES);
  db.durably(() => db.run("INSERT INTO meta (key, value) VALUES (?, ?)", name, key.toString("base64url")));
  return key;
}
