// Tests whether this host allows VMMs in their own namespaces, by starting one. Settings of the host prove nothing.

import { realpath, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { makeRunDir } from "../host/run-dirs.ts";
import { withStaging } from "../host/staging.ts";
import type { CallFilter, ConfinementState, InstalledEngine } from "../vmm/driver.ts";

const SYSTEM = /^\/(usr|bin|sbin|lib\w*)(\/|$)/;
const MEMORY_BYTES = 1024 * 1024;

export type ConfinementProbeOptions = { engine: InstalledEngine; warden: string; signal?: AbortSignal | undefined };

/** Starts a VMM without a machine, confined as for a fork, with files of the store */
export async function probeConfinement(home: Home, opts: ConfinementProbeOptions): Promise<ConfinementState> {
  const seen = await inSystem(home);
  if (seen !== undefined) return { kind: "none", reason: `${seen} lies in a folder of the system, which every VMM sees` };
  const state = await confinedBy(opts.engine.calls, async ({ filter }) => {
    await withStaging(home, async (staging) => tryWith(home, staging, { ...opts, filter }));
  });
  opts.signal?.throwIfAborted();
  return state;
}

/** An allow list that is too short for this engine and its libraries must not prevent namespaces: then only dangerous calls are refused */
export async function confinedBy(calls: CallFilter, attempt: (calls: CallFilter) => Promise<void>): Promise<ConfinementState> {
  try {
    await attempt(calls);
    return { kind: "namespaces", reason: null, calls };
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    return calls.filter === "deny"
      ? { kind: "none", reason: error.message }
      : confinedBy({ filter: "deny", reason: error.message }, attempt);
  }
}

/** A folder of forkd that cannot be hidden */
async function inSystem(home: Home): Promise<string | undefined> {
  for (const dir of [home.root, home.run]) if (SYSTEM.test(await realpath(dir))) return dir;
  return undefined;
}

async function tryWith(home: Home, staging: string, opts: ConfinementProbeOptions & { filter: CallFilter["filter"] }): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  const memory = join(staging, "memory.ram");
  const deviceState = join(staging, "device.state");
  for (const file of [memory, deviceState]) await writeFile(file, "", { mode: 0o600 });
  await truncate(memory, MEMORY_BYTES);
  const { engine, filter, warden, signal } = opts;
  await engine.tryConfined({ dir, memory, deviceState, memoryBytes: MEMORY_BYTES, filter, warden, signal });
}
