// Schema migrations. Append new entries at the end; never change an existing one.

import { ForkdError } from "@forkd/runtime/errors";
import type { Db } from "./db.ts";

export const MIGRATIONS = [
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

  // a resumed workspace keeps its memory limit
  `ALTER TABLE workspaces ADD COLUMN memory_limit_mib INTEGER;`,

  // saved states are referenced by id, not by tag; an announced snapshot is not removed at start
  `ALTER TABLE workspaces ADD COLUMN state_id TEXT;
   ALTER TABLE snapshots ADD COLUMN told INTEGER NOT NULL DEFAULT 0;`,

  // the memory file is found through the snapshot
  `ALTER TABLE sandboxes DROP COLUMN memory_path;`,

  // machines with a disk
  `ALTER TABLE sandboxes ADD COLUMN disk_mib INTEGER;
   ALTER TABLE snapshots ADD COLUMN disk_mib INTEGER;`,
  // an adopted sandbox keeps its network policy
  `ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '{"mode":"none","allow":[],"egressLimitBytes":null}';
   ALTER TABLE sandboxes ADD COLUMN egress_bytes INTEGER NOT NULL DEFAULT 0;`,
  // sandboxes of earlier versions are unconfined; host limits are stored as requested
  `ALTER TABLE sandboxes ADD COLUMN confinement TEXT NOT NULL DEFAULT 'none';
   ALTER TABLE sandboxes ADD COLUMN cpu_limit REAL;
   ALTER TABLE sandboxes ADD COLUMN cpu_weight INTEGER;
   ALTER TABLE sandboxes ADD COLUMN pids_limit INTEGER;
   ALTER TABLE sandboxes ADD COLUMN io_limit_mbps REAL;
   ALTER TABLE workspaces ADD COLUMN cpu_limit REAL;
   ALTER TABLE workspaces ADD COLUMN cpu_weight INTEGER;
   ALTER TABLE workspaces ADD COLUMN pids_limit INTEGER;
   ALTER TABLE workspaces ADD COLUMN io_limit_mbps REAL;`,
  // adopted sandboxes and forks of branches keep their shared folders
  `ALTER TABLE sandboxes ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';
   ALTER TABLE snapshots ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';`,
  // suspension on timeout, and resumption on use
  `ALTER TABLE sandboxes ADD COLUMN ttl_secs INTEGER;
   ALTER TABLE sandboxes ADD COLUMN on_timeout TEXT NOT NULL DEFAULT 'end';
   ALTER TABLE sandboxes ADD COLUMN auto_resume INTEGER NOT NULL DEFAULT 0;`,
  // list order of sandboxes created within one second
  `ALTER TABLE sandboxes ADD COLUMN created_at_ms INTEGER NOT NULL DEFAULT 0;
   UPDATE sandboxes SET created_at_ms = created_at * 1000;`,
  // suspension on timeout without memory
  `ALTER TABLE sandboxes ADD COLUMN keep_memory INTEGER NOT NULL DEFAULT 1;`,
  // rotation of a sandbox's access tokens
  `CREATE TABLE access_salts (sandbox TEXT PRIMARY KEY, salt BLOB NOT NULL) STRICT;`,
  // description of a snapshot
  `ALTER TABLE snapshots ADD COLUMN description TEXT;`,
  // `announced`: a client got the snapshot's tag while it was being written
  `ALTER TABLE snapshots RENAME COLUMN told TO announced;`,
  // logins to the dashboard
  `CREATE TABLE ui_sessions (
     hash TEXT PRIMARY KEY,
     kind TEXT NOT NULL,
     principal TEXT NOT NULL,
     maker BLOB NOT NULL,
     scope TEXT NOT NULL,
     expires_at INTEGER NOT NULL,
     session_secs INTEGER NOT NULL
   ) STRICT;`,
  // projects: what exists belongs to the project default. Tokens of scope admin managed the whole daemon, which is now the scope
  // operator. Names are unique per project, and a UNIQUE column cannot be changed, so three tables are copied
  `CREATE TABLE projects (
     name TEXT PRIMARY KEY,
     quota TEXT NOT NULL,
     egress_bytes INTEGER NOT NULL DEFAULT 0,
     egress_period TEXT NOT NULL DEFAULT '',
     created_at INTEGER NOT NULL
   ) STRICT;
   INSERT INTO projects (name, quota, created_at) VALUES ('default', '{}', unixepoch());

   ALTER TABLE tokens ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
   ALTER TABLE tokens ADD COLUMN expires_at INTEGER;
   UPDATE tokens SET scope = 'operator' WHERE scope = 'admin';
   ALTER TABLE ui_sessions ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
   UPDATE ui_sessions SET scope = 'operator' WHERE scope = 'admin';

   ALTER TABLE snapshots ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
   ALTER TABLE snapshots ADD COLUMN visibility TEXT NOT NULL DEFAULT 'private';
   ALTER TABLE snapshots ADD COLUMN expires_at INTEGER;
   ALTER TABLE snapshots ADD COLUMN bytes INTEGER;
   ALTER TABLE events ADD COLUMN project TEXT;
   UPDATE events SET project = 'default' WHERE type NOT LIKE 'daemon.%';
   CREATE INDEX events_of_project ON events (project, id);

   CREATE TABLE copied_sandboxes (
     id TEXT PRIMARY KEY,
     project TEXT NOT NULL,
     name TEXT,
     snapshot_id TEXT NOT NULL,
     snapshot_tag TEXT NOT NULL,
     state TEXT NOT NULL,
     reason TEXT,
     pid INTEGER NOT NULL,
     start_time TEXT NOT NULL,
     boot_id TEXT NOT NULL,
     memory_mib INTEGER NOT NULL,
     vcpus INTEGER NOT NULL,
     disk_mib INTEGER,
     isolation TEXT NOT NULL,
     confinement TEXT NOT NULL,
     kernels TEXT NOT NULL,
     env TEXT NOT NULL,
     shares TEXT NOT NULL,
     certificate TEXT NOT NULL,
     metadata TEXT NOT NULL,
     fork_ms REAL NOT NULL,
     created_at INTEGER NOT NULL,
     created_at_ms INTEGER NOT NULL,
     last_active INTEGER NOT NULL,
     expires_at INTEGER,
     ttl_secs INTEGER,
     idle_timeout_secs INTEGER,
     suspended_ttl_secs INTEGER,
     on_timeout TEXT NOT NULL,
     auto_resume INTEGER NOT NULL,
     keep_memory INTEGER NOT NULL,
     branch_count INTEGER NOT NULL,
     last_branch_path TEXT,
     network TEXT NOT NULL,
     egress_bytes INTEGER NOT NULL,
     created_by TEXT NOT NULL,
     warnings TEXT NOT NULL,
     memory_limit_mib INTEGER,
     cpu_limit REAL,
     cpu_weight INTEGER,
     pids_limit INTEGER,
     io_limit_mbps REAL,
     UNIQUE (project, name)
   ) STRICT;
   INSERT INTO copied_sandboxes SELECT id, 'default', name, snapshot_id, snapshot_tag, state, reason, pid, start_time, boot_id,
     memory_mib, vcpus, disk_mib, isolation, confinement, kernels, env, shares, certificate, metadata, fork_ms, created_at,
     created_at_ms, last_active, expires_at, ttl_secs, idle_timeout_secs, NULL, on_timeout, auto_resume, keep_memory,
     branch_count, last_branch_path, network, egress_bytes, created_by, warnings, memory_limit_mib, cpu_limit, cpu_weight,
     pids_limit, io_limit_mbps FROM sandboxes;
   DROP TABLE sandboxes;
   ALTER TABLE copied_sandboxes RENAME TO sandboxes;

   CREATE TABLE copied_workspaces (
     id TEXT PRIMARY KEY,
     project TEXT NOT NULL,
     name TEXT NOT NULL,
     source_snapshot_tag TEXT NOT NULL,
     state_tag TEXT,
     state_id TEXT,
     sandbox_id TEXT,
     created_at INTEGER NOT NULL,
     last_active INTEGER NOT NULL,
     warnings TEXT NOT NULL,
     memory_limit_mib INTEGER,
     cpu_limit REAL,
     cpu_weight INTEGER,
     pids_limit INTEGER,
     io_limit_mbps REAL,
     UNIQUE (project, name)
   ) STRICT;
   INSERT INTO copied_workspaces SELECT id, 'default', name, source_snapshot_tag, state_tag, state_id, sandbox_id, created_at,
     last_active, warnings, memory_limit_mib, cpu_limit, cpu_weight, pids_limit, io_limit_mbps FROM workspaces;
   DROP TABLE workspaces;
   ALTER TABLE copied_workspaces RENAME TO workspaces;

   CREATE TABLE copied_idempotency (
     project TEXT NOT NULL,
     principal TEXT NOT NULL,
     key TEXT NOT NULL,
     request_hash BLOB NOT NULL,
     status INTEGER,
     body TEXT,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (project, principal, key)
   ) STRICT;
   INSERT INTO copied_idempotency SELECT 'default', principal, key, request_hash, status, body, created_at FROM idempotency;
   DROP TABLE idempotency;
   ALTER TABLE copied_idempotency RENAME TO idempotency;`,
  // moves of sandboxes and workspaces to other nodes, and the access that clients got on the nodes before
  `CREATE TABLE moves (
     id TEXT NOT NULL,
     kind TEXT NOT NULL,
     project TEXT NOT NULL,
     name TEXT,
     node TEXT NOT NULL,
     record TEXT NOT NULL,
     at INTEGER NOT NULL,
     PRIMARY KEY (id, kind)
   ) STRICT;
   CREATE TABLE moved_access (sandbox TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;`,
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
