// Sandboxes and snapshots that a command makes for itself and removes again, whatever happens.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { stopDaemon } from "./daemon-stop.ts";
import { ABORTABLE } from "./daemon.ts";
import { codeOf } from "./errors.ts";
import { workingOnTerminal } from "./progress.ts";

import type { Controller, CreateSnapshotOptions, SpawnOptions } from "forkd";
import type { Cli } from "./cli.ts";

/** Cleaning up goes on after Ctrl-C, which aborts everything else */
const CLEAN_UP_MS = 12_000;
/** A request that was interrupted may still be at work on what is to be removed */
const UNFINISHED = new Set(["SNAPSHOT_NOT_READY", "BUSY"]);
const POLL_MS = 100;

/** One fork of a snapshot for as long as `use` takes */
export async function withSandbox<T>(
  cli: Cli,
  forkd: Controller,
  tag: string,
  use: (id: string) => Promise<T>,
  opts: SpawnOptions = {},
): Promise<T> {
  // named, so that it can be found after a request whose answer never came
  const name = temporaryName("run");
  try {
    const [sandbox] = await forkd.spawnSandboxes(tag, { ...opts, n: 1, name, ...ABORTABLE, signal: cli.signal });
    return await use(sandbox?.id ?? name);
  } finally {
    await removed(async (signal) => forkd.killSandbox(name, { signal }));
  }
}

/** A snapshot of an image for as long as `use` takes */
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

/** A daemon that a command started for itself goes with it, unless somebody else has come to use it */
export async function stopIfIdle(forkd: Controller): Promise<void> {
  const signal = AbortSignal.timeout(CLEAN_UP_MS);
  try {
    await stopDaemon(forkd, await forkd.status({ signal }), { killSandboxes: false, ifIdle: true, isLocal: true, signal });
  } catch (error) {
    if (codeOf(error) !== "IN_USE") throw error;
  }
}

/** A name that nothing else has */
export function temporaryName(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString("hex")}`;
}

/** Removes what may not be there, or not be finished */
export async function removed(remove: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const signal = AbortSignal.timeout(CLEAN_UP_MS);
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
