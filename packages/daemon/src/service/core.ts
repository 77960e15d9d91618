// Dependencies and settings shared by the parts of the manager.

import type { Home } from "@forkd/runtime/home";
import type { AcceleratorPolicy, IsolationPolicy } from "@forkd/runtime/host/accelerators";
import type { TrustPolicy } from "@forkd/runtime/pack/signature";
import type { ConfinementPolicy } from "@forkd/runtime/host/confined";
import type { Runtime } from "@forkd/runtime/runtime";
import type { Cordon } from "../store/cordon.ts";
import type { Db } from "../store/db.ts";
import type { EventLog } from "../store/events.ts";
import type { Tables } from "../store/tables.ts";
import type { Quotas } from "./quotas.ts";

export type Settings = {
  maxSandboxes: number;
  maxSuspended: number;
  /** per token */
  maxSnapshots: number;
  /** limit of the total guest memory; null: none */
  maxMemoryMiB: number | null;
  /** limit of the total disk size of running sandboxes; null: none */
  maxDiskMiB: number | null;
  /** memory that must stay free on the host */
  minFreeMiB: number;
  branchConcurrency: number;
  /** whether VMs may run on a host that cannot confine VMMs */
  confinement: ConfinementPolicy;
  /** whether guests may be emulated */
  isolation: IsolationPolicy;
  /** KVM or emulation */
  accelerator: AcceleratorPolicy;
  /** folder on a tmpfs with huge pages */
  hugepagesDir: string;
  defaultImage: string;
  /** signature policy for received packs */
  packTrust: TrustPolicy;
  /** limit of the cache of compressed pack blobs */
  packCacheMiB: number;
  /** index for alias lookups; null: none */
  hubUrl: string | null;
  /** DNS servers for sandboxes; null: those of the host */
  dnsServers: string | null;
  /** folders below which requests over TCP may share, separated by commas; null: none */
  shareRoots: string | null;
};

/** Metrics interface of the manager */
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
  /** code of this node: the ids that it makes begin with it */
  node: string;
  db: Db;
  tables: Tables;
  events: EventLog;
  runtime: Runtime;
  quotas: Quotas;
  /** absent: never cordoned */
  cordon?: Pick<Cordon, "isSet">;
  settings: Settings;
  meter: Meter;
  log: Log;
  /** limit of live sandboxes of the token with this name; null: none */
  maxSandboxesOf: (principal: string) => number | null;
};

export function nowUnix(): number {
  return Math.floor(Date.now() / 1000);
}
