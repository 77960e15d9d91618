// Saves the counters of an instrumented agent before its sandbox is killed.

import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { RAW } from "./places.ts";

import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";

/** Path at which profile.c keeps the counters */
const PROFILE = "/proc/1/fd/900";
/** A paused, hostile or out-of-memory guest does not answer; its counters are lost */
const WITHIN_MS = 5000;

export function saveProfileBeforeKill(type: typeof Sandbox): void {
  // oxlint-disable-next-line typescript/unbound-method -- called with its sandbox below
  const { kill } = type.prototype;
  const ends = new WeakMap<Sandbox, Promise<void>>();
  type.prototype.kill = async function killAfterwards(this: Sandbox): Promise<void> {
    const end = ends.get(this) ?? saveProfile(this).then(async () => kill.call(this));
    ends.set(this, end);
    return end;
  };
}

async function saveProfile(sandbox: Sandbox): Promise<void> {
  if (!sandbox.alive || sandbox.exit !== undefined) return;
  try {
    const bytes = await sandbox.files.read(PROFILE, { signal: AbortSignal.timeout(WITHIN_MS) });
    const file = join(RAW, `agent-${sandbox.id}`);
    // the collector reads only complete files
    await writeFile(file, bytes);
    await rename(file, `${file}.profraw`);
  } catch {
    // the sandbox is killed in any case
  }
}
