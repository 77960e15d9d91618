// This user's daemon, which the command `forkd` starts when it is not running.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { ConnectionError, Controller, ForkdError } from "forkd";

/** As when `forkd` starts a daemon by itself: no port, and it ends when it is idle */
const START = ["up", "--bind", "none", "--exit-when-idle-secs", "600"];
const START_MS = 120_000;
const HEALTH_MS = 10_000;

/** Called for each request: the daemon may have ended since */
export function localDaemon(): () => Promise<Controller> {
  const forkd = new Controller({ timeoutMs: 0 });
  let starting: Promise<void> | undefined;
  return async () => {
    try {
      await forkd.health({ timeoutMs: HEALTH_MS });
    } catch (error) {
      if (!(error instanceof ConnectionError) || process.env["FORKD_NO_AUTOSTART"]) throw error;
      starting ??= start(error).finally(() => (starting = undefined));
      await starting;
    }
    return forkd;
  };
}

async function start(cause: Error): Promise<void> {
  try {
    await promisify(execFile)("forkd", START, { timeout: START_MS });
  } catch (error) {
    const { code, stderr = "" } = error as { code?: unknown; stderr?: string };
    const why = code === "ENOENT" ? "there is no command forkd" : stderr.trim().split("\n")[0] || String(error);
    throw new ForkdError("DAEMON_UNREACHABLE", `${cause.message} It could not be started: ${why}`, {
      hint: "Start it with 'forkd up', or set FORKD_URL and FORKD_TOKEN to use one elsewhere.",
      cause: error,
    });
  }
}
