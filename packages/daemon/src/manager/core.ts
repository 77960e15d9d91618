// What the parts of the manager share.

import type { Home } from "../home.ts";
import type { TrustPolicy } from "../pack/signature.ts";
import type { ConfinementPolicy } from "../sandbox/ground.ts";
import type { Runtime } from "../sandbox/runtime.ts";
import type { Db } from "../store/db.ts";
import type { EventLog } from "../store/events.ts";
import type { Tables } from "../store/tables.ts";

export type Settings = {
  maxSandboxes: number;
  /** limit of the sum of guest memory; null: none */
  maxMemoryMiB: number | null;
  /** limit of the sum of the disks of running sandboxes; null: none */
  maxDiskMiB: number | null;
  /** what the host must keep free */
  minFreeMiB: number;
  branchConcurrency: number;
  /** whether VMs may run where the host does not let VMMs be confined */
  confinement: ConfinementPolicy;
  defaultImage: string;
  /** what is asked of packs that come in */
  packTrust: TrustPolicy;
  /** limit of what was compressed before and is kept */
  packCacheMiB: number;
  /** index in which aliases are looked up; null: none */
  hubUrl: string | null;
  /** who is asked for names; null: whom the host asks */
  dnsServers: string | null;
  /** folders below which shares are allowed over the network, separated by commas; null: none */
  shareRoots: string | null;
};

/** What the manager reports of its work */
export type Meter = {
  forked: (ms: number, ok: boolean) => void;
  branched: (pauseMs: number, deltaBytes: number, ok: boolean) => void;
  evaluated: (ms: number, ok: boolean) => void;
  executed: (ms: number, ok: boolean) => void;
  connected: (event: "opened" | "refused" | "ended", bytes: { up: number; down: number }) => void;
};

export type Log = {
  info: (facts: object, message: string) => void;
  warn: (facts: object, message: string) => void;
  error: (facts: object, message: string) => void;
};

export type Core = {
  home: Home;
  db: Db;
  tables: Tables;
  events: EventLog;
  runtime: Runtime;
  settings: Settings;
  meter: Meter;
  log: Log;
};

export function nowUnix(): number {
  return Math.floor(Date.now() / 1000);
}

/** What an older API took for its root set-up has no effect here; each field that was given is named */
export function plumbingWarnings(request: Record<string, unknown>, fields: readonly string[]): string[] {
  return fields
    .filter((field) => request[field] !== undefined && request[field] !== false)
    .map((field) => `${field} has no effect: forkd needs no such set-up.`);
}
