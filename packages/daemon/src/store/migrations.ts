// The tables. A change of them is a new entry at the end; what is there never changes.

import { ForkdError } from "../errors.ts";
import type { Db } from "./db.ts";

const MIGRATIONS = [
  `CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

   CREATE TABLE sandboxes (
     id TEXT PRIMARY KEY,
     name TEXT UNIQUE,
     snapshot_id TEXT NOT NULL,
     snapshot_tag TEXT NOT NULL,
     state TEXT NOT NULL,
     reason TEXT,
     pid INTEGER NOT NULL,
     start_time TEXT NOT NULL,
     boot_id TEXT NOT NULL,
     memory_path TEXT NOT NULL,
     memory_mib INTEGER NOT NULL,
     vcpus INTEGER NOT NULL,
     isolation TEXT NOT NULL,
     kernels TEXT NOT NULL,
     env TEXT NOT NULL,
     certificate TEXT NOT NULL,
     metadata TEXT NOT NULL,
     fork_ms REAL NOT NULL,
     created_at INTEGER NOT NULL,
     last_active INTEGER NOT NULL,
     expires_at INTEGER,
     idle_timeout_secs INTEGER,
     branch_count INTEGER NOT NULL DEFAULT 0,
     last_branch_path TEXT,
     memory_limit_mib INTEGER,
     created_by TEXT NOT NULL,
     warnings TEXT NOT NULL
   ) STRICT;

   CREATE TABLE snapshots (
     id TEXT PRIMARY KEY,
     tag TEXT NOT NULL,
     status TEXT NOT NULL,
     error TEXT,
     ephemeral INTEGER NOT NULL DEFAULT 0,
     image TEXT,
     memory_mib INTEGER NOT NULL,
     vcpus INTEGER NOT NULL,
     parent_tag TEXT,
     branched_from TEXT,
     pause_ms REAL,
     delta_bytes INTEGER,
     pool INTEGER NOT NULL DEFAULT 0,
     metadata TEXT NOT NULL,
     warnings TEXT NOT NULL,
     created_by TEXT NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT;

   CREATE TABLE workspaces (
     id TEXT PRIMARY KEY,
     name TEXT NOT NULL UNIQUE,
     source_snapshot_tag TEXT NOT NULL,
     state_tag TEXT,
     sandbox_id TEXT,
     created_at INTEGER NOT NULL,
     last_active INTEGER NOT NULL,
     warnings TEXT NOT NULL
   ) STRICT;

   CREATE TABLE tokens (
     name TEXT PRIMARY KEY,
     scope TEXT NOT NULL,
     hash BLOB NOT NULL UNIQUE,
     max_sandboxes INTEGER,
     created_at INTEGER NOT NULL,
     last_used INTEGER
   ) STRICT;

   CREATE TABLE idempotency (
     principal TEXT NOT NULL,
     key TEXT NOT NULL,
     request_hash BLOB NOT NULL,
     status INTEGER,
     body TEXT,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (principal, key)
   ) STRICT;

   CREATE TABLE events (
     id INTEGER PRIMARY KEY AUTOINCREMENT,
     time INTEGER NOT NULL,
     type TEXT NOT NULL,
     sandbox TEXT,
     snapshot TEXT,
     principal TEXT,
     reason TEXT,
     metadata TEXT
   ) STRICT;`,

  // a workspace that goes on has the limit that it was made with
  `ALTER TABLE workspaces ADD COLUMN memory_limit_mib INTEGER;`,

  // a saved state is known by its id, whatever it is named; a snapshot that somebody was told of is not taken back
  `ALTER TABLE workspaces ADD COLUMN state_id TEXT;
   ALTER TABLE snapshots ADD COLUMN told INTEGER NOT NULL DEFAULT 0;`,

  // the memory of a sandbox is found by its snapshot
  `ALTER TABLE sandboxes DROP COLUMN memory_path;`,

  // a machine may have a disk
  `ALTER TABLE sandboxes ADD COLUMN disk_mib INTEGER;
   ALTER TABLE snapshots ADD COLUMN disk_mib INTEGER;`,
  // a sandbox that goes on has the rules that it had
  `ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '{"mode":"none","allow":[],"egressLimitBytes":null}';
   ALTER TABLE sandboxes ADD COLUMN egress_bytes INTEGER NOT NULL DEFAULT 0;`,
  // whoever was started before was not confined; limits of the host are as they were asked for
  `ALTER TABLE sandboxes ADD COLUMN confinement TEXT NOT NULL DEFAULT 'none';
   ALTER TABLE sandboxes ADD COLUMN cpu_limit REAL;
   ALTER TABLE sandboxes ADD COLUMN cpu_weight INTEGER;
   ALTER TABLE sandboxes ADD COLUMN pids_limit INTEGER;
   ALTER TABLE sandboxes ADD COLUMN io_limit_mbps REAL;
   ALTER TABLE workspaces ADD COLUMN cpu_limit REAL;
   ALTER TABLE workspaces ADD COLUMN cpu_weight INTEGER;
   ALTER TABLE workspaces ADD COLUMN pids_limit INTEGER;
   ALTER TABLE workspaces ADD COLUMN io_limit_mbps REAL;`,
  // a sandbox that is adopted, and the forks of a branch, see the same folders of the host
  `ALTER TABLE sandboxes ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';
   ALTER TABLE snapshots ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';`,
  // a sandbox can sleep when its time is over, and wake up when it is used
  `ALTER TABLE sandboxes ADD COLUMN ttl_secs INTEGER;
   ALTER TABLE sandboxes ADD COLUMN on_timeout TEXT NOT NULL DEFAULT 'end';
   ALTER TABLE sandboxes ADD COLUMN auto_resume INTEGER NOT NULL DEFAULT 0;`,
];

export function migrate(db: Db): void {
  const version = Number(db.get("PRAGMA user_version")?.["user_version"] ?? 0);
  if (version > MIGRATIONS.length) {
    throw new ForkdError("STATE_TOO_NEW", `Cannot use the database: it has version ${version}, this daemon knows ${MIGRATIONS.length}.`);
  }
  if (version === MIGRATIONS.length) return;
  for (const [at, sql] of MIGRATIONS.entries()) if (at >= version) db.exec(sql);
  db.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
}
