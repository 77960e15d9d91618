// Stops a daemon and waits until it is gone.

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { codeOf, failure } from "./errors.ts";

import type { Controller, Status } from "forkd";

const POLL_MS = 50;
/** Beyond the time for which it waits for requests */
const MARGIN_MS = 30_000;
const DEFAULT_DRAIN_SECS = 30;

export type StopOptions = {
  killSandboxes: boolean;
  /** IN_USE when somebody uses it */
  ifIdle?: boolean;
  /** on this machine its process can be seen to end; elsewhere only its answers */
  isLocal: boolean;
  signal: AbortSignal;
};

export async function stopDaemon(forkd: Controller, status: Status, opts: StopOptions): Promise<void> {
  const { signal } = opts;
  const { drain_secs: drain } = await forkd.config({ signal });
  await forkd.stop({ killSandboxes: opts.killSandboxes, ifIdle: opts.ifIdle, signal });
  const end = Date.now() + Number(drain?.value ?? DEFAULT_DRAIN_SECS) * 1000 + MARGIN_MS;
  while (await (opts.isLocal ? isAlive(status.pid) : isReachable(forkd, signal))) {
    if (Date.now() > end)
      throw failure(
        "DAEMON_FAILED",
        `The daemon (pid ${status.pid}) does not end.`,
        "Its log says what it waits for; 'forkd where' says where.",
      );
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function isReachable(forkd: Controller, signal: AbortSignal): Promise<boolean> {
  try {
    await forkd.health({ signal });
    return true;
  } catch (error) {
    if (codeOf(error) === "DAEMON_UNREACHABLE") return false;
    throw error;
  }
}

/** One that has ended and that nobody has buried yet is gone too: in a container that can take seconds */
async function isAlive(pid: number): Promise<boolean> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes(codeOf(error) ?? "")) return false;
    throw error;
  }
}
