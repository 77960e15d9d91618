// Timeouts of sandboxes: ends or suspends expired ones, and removes old records of ended ones.

import { messageOf } from "@forkd/runtime/errors";
import { ownCaller } from "./caller.ts";
import type { Core } from "./core.ts";
import { nowUnix } from "./core.ts";
import type { Entry, Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Suspension } from "./suspension.ts";

const EVERY_MS = 1000;
/** how often the last-active time is stored, in rounds */
const WRITE_EVERY = 10;
/** how often the disks of sandboxes are measured for the quotas, in rounds */
const MEASURE_EVERY = 30;
/** how often ended sandboxes are checked, in rounds */
const FORGET_EVERY = 60;
/** Retry interval of a suspension that failed, such as at the limit of suspended sandboxes */
const SLEEP_AGAIN_MS = 30_000;
/** How long the record of an ended or lost sandbox is kept */
const KEEP_ENDED_SECS = 24 * 3600;
const PRINCIPAL = "reaper";

export class Reaper {
  readonly #core: Core;
  readonly #registry: Registry;
  readonly #sandboxes: Sandboxes;
  readonly #suspension: Suspension;
  readonly #snapshots: Snapshots;
  readonly #timer: NodeJS.Timeout;
  readonly #sleepAgain = new WeakMap<Entry, number>();
  #round = 0;
  /** whether expired snapshots are being removed */
  #removing = false;

  constructor(core: Core, parts: { registry: Registry; sandboxes: Sandboxes; suspension: Suspension; snapshots: Snapshots }) {
    this.#core = core;
    this.#registry = parts.registry;
    this.#sandboxes = parts.sandboxes;
    this.#suspension = parts.suspension;
    this.#snapshots = parts.snapshots;
    this.#timer = setInterval(() => this.#safely(() => this.#look()), EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#safely(() => this.#writeDown());
  }

  #look(): void {
    const isTimeToForget = ++this.#round % FORGET_EVERY === 0;
    for (const entry of isTimeToForget ? this.#registry.entries : this.#registry.lasting) {
      const reason = overdue(entry);
      if (reason === undefined || entry.removing || entry.transition) continue;
      if (isToSleep(entry)) this.#suspend(entry);
      else this.#end(entry, reason);
    }
    if (this.#round % WRITE_EVERY === 0) this.#writeDown();
    if (this.#round % MEASURE_EVERY === 0) void this.#measure();
    if (!this.#removing) void this.#removeExpired();
  }

  /** Logs a failure, such as a full disk; the next round retries */
  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#core.log.error({ err: error }, `the reaper's round failed: ${messageOf(error)}`);
    }
  }

  #end(entry: Entry, reason: string): void {
    this.#sandboxes.remove(entry.row.id, ownCaller(PRINCIPAL, entry.row.project), reason).catch((error: unknown) => {
      this.#core.log.error({ sandbox: entry.row.id, err: error }, `a sandbox could not be ended: ${messageOf(error)}`);
    });
  }

  #suspend(entry: Entry): void {
    if (Date.now() < (this.#sleepAgain.get(entry) ?? 0)) return;
    this.#suspension.suspend(entry.row.id, ownCaller(PRINCIPAL, entry.row.project)).catch((error: unknown) => {
      this.#sleepAgain.set(entry, Date.now() + SLEEP_AGAIN_MS);
      this.#core.log.error({ sandbox: entry.row.id, err: error }, `a sandbox could not be suspended: ${messageOf(error)}`);
    });
  }

  async #removeExpired(): Promise<void> {
    this.#removing = true;
    try {
      await this.#snapshots.removeExpired(PRINCIPAL);
    } catch (error) {
      this.#core.log.error({ err: error }, `expired snapshots could not be removed: ${messageOf(error)}`);
    } finally {
      this.#removing = false;
    }
  }

  /** Only disks: the sizes of snapshots are in their rows */
  async #measure(): Promise<void> {
    const disks = new Map<string, number>();
    for (const { row, sandbox } of this.#registry.live) {
      try {
        const bytes = (await sandbox?.disk?.ownBytes()) ?? 0;
        disks.set(row.project, (disks.get(row.project) ?? 0) + bytes);
      } catch (error) {
        // ended meanwhile
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") this.#core.log.warn({ err: error }, "a disk could not be measured");
      }
    }
    this.#core.quotas.measured(disks);
  }

  #writeDown(): void {
    this.#core.db.flush();
    const stale = this.#registry.live.filter(({ row, lastActive }) => Math.floor(lastActive / 1000) > row.last_active);
    if (stale.length === 0) return;
    this.#core.db.transaction(() => {
      for (const entry of stale) this.#registry.change(entry, { last_active: Math.floor(entry.lastActive / 1000) });
    });
  }
}

function isToSleep({ row }: Entry): boolean {
  return row.on_timeout === "suspend" && (row.state === "running" || row.state === "paused");
}

function overdue({ row, uses, lastActive }: Entry): string | undefined {
  const now = nowUnix();
  if (row.state === "ended" || row.state === "lost")
    return now - Math.max(row.last_active, row.created_at) > KEEP_ENDED_SECS ? "it ended long ago" : undefined;
  if (row.state === "suspended") return row.expires_at !== null && row.expires_at <= now ? "it was suspended for too long" : undefined;
  if (row.expires_at !== null && row.expires_at <= now) return "its time to live is over";
  if (row.idle_timeout_secs !== null && uses === 0 && Date.now() - lastActive >= row.idle_timeout_secs * 1000)
    return "its idle time-out is over";
  return undefined;
}
