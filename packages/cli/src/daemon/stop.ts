// Stops a daemon and waits for its end.

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { codeOf, failure } from "../errors.ts";

import type { Controller, Status } from "forkd";

const POLL_MS = 50;
/** Added to the time for which the daemon waits for requests */
const MARGIN_MS = 30_000;
const DEFAULT_DRAIN_SECS = 30;

export type StopOptions = {
  killSandboxes: boolean;
  /** IN_USE when it has clients or sandboxes */
  ifIdle?: boolean;
  /** a local daemon's process is watched; a remote one is polled */
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
        "Its log says what it waits for; 'forkd where' prints the path.",
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

/** A zombie has ended too: in a container it may be reaped only seconds later */
async function isAlive(pid: number): Promise<boolean> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes(codeOf(error) ?? "")) return false;
    throw error;
  }
}
