// Temporary sandboxes and snapshots of a command, removed also when the command fails.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { stopDaemon } from "../daemon/stop.ts";
import { ABORTABLE } from "../daemon/connect.ts";
import { codeOf } from "../errors.ts";
import { workingOnTerminal } from "../terminal/progress.ts";
import { noteUnconfined } from "../daemon/unconfined.ts";

import type { Controller, CreateSnapshotOptions, SpawnOptions } from "forkd";
import type { Cli } from "../cli.ts";

/** Clean-up continues after Ctrl-C, which aborts all other requests */
const CLEAN_UP_MS = 12_000;
/** Without Ctrl-C the limit is longer: on a busy host the end of a VM takes time */
const REMOVE_MS = 120_000;
/** Idle time-out of the sandbox of a command that was killed and could not remove it. Requests of the command count as use */
const ALONE_SECS = 60;
/** An interrupted request may still be creating the object that is to be removed */
const UNFINISHED = new Set(["SNAPSHOT_NOT_READY", "BUSY"]);
const POLL_MS = 100;

/** One fork of a snapshot while `use` runs */
export async function withSandbox<T>(
  cli: Cli,
  forkd: Controller,
  tag: string,
  use: (id: string) => Promise<T>,
  opts: SpawnOptions = {},
): Promise<T> {
  // named, so that it is found when the answer to its creation was lost
  const name = temporaryName("run");
  try {
    const [sandbox] = await forkd.spawnSandboxes(tag, {
      idleTimeoutSecs: ALONE_SECS,
      ...opts,
      n: 1,
      name,
      ...ABORTABLE,
      signal: cli.signal,
    });
    if (sandbox) await noteUnconfined(cli, forkd, [sandbox]);
    return await use(sandbox?.id ?? name);
  } finally {
    await removed(async (signal) => forkd.killSandbox(name, { signal }));
  }
}

/** A snapshot of an image while `use` runs */
export async function withSnapshot<T>(
  cli: Cli,
  forkd: Controller,
  create: CreateSnapshotOptions,
  use: (tag: string) => Promise<T>,
): Promise<T> {
  const tag = temporaryName("run");
  try {
    await workingOnTerminal("Booting", async (onProgress) =>
      forkd.createSnapshot(tag, { ...create, ...ABORTABLE, onProgress, signal: cli.signal }),
    );
    return await use(tag);
  } finally {
    await removed(async (signal) => forkd.deleteSnapshot(tag, { force: true, signal }));
  }
}

/** Stops a daemon that this command started, unless it has other users */
export async function stopIfIdle(forkd: Controller): Promise<void> {
  const signal = AbortSignal.timeout(CLEAN_UP_MS);
  try {
    await stopDaemon(forkd, await forkd.status({ signal }), { killSandboxes: false, ifIdle: true, isLocal: true, signal });
  } catch (error) {
    if (codeOf(error) !== "IN_USE") throw error;
  }
}

/** A unique name */
export function temporaryName(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString("hex")}`;
}

/** Removes an object that may not exist or not be complete */
export async function removed(remove: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const signal = AbortSignal.timeout(REMOVE_MS);
  for (;;) {
    try {
      await remove(signal);
      return;
    } catch (error) {
      const code = codeOf(error) ?? "";
      if (code === "NOT_FOUND") return;
      if (!UNFINISHED.has(code)) throw error;
      await sleep(POLL_MS, undefined, { signal });
    }
  }
}
