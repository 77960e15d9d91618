// Entry point of the daemon process: arguments, signals, and the ready message to the parent.

import { closeSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { CONFIG_OPTIONS, readyDescriptor, resolveConfig } from "./config.ts";
import { startDaemon } from "./daemon.ts";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { resolveHome } from "@forkd/runtime/home";
import { createLog } from "./observe/log.ts";
import type { Daemon } from "./daemon.ts";
import type { Logger } from "./observe/log.ts";

/** Resolves to the exit code when the daemon has stopped */
export async function runDaemon(args: string[]): Promise<number> {
  let log = createLog("info");
  try {
    const home = resolveHome();
    const config = await resolveConfig({ options: parseOptions(args), home });
    log = createLog(config.values.logLevel);
    installFatal(log);
    const early = installSignals();
    const daemon = await startDaemon({ config, home, log });
    early.hand(daemon, log);
    tellStarter({ ready: true, socket: daemon.socket, bind: daemon.bind });
    await daemon.done;
    return 0;
  } catch (error) {
    log.fatal({ err: error }, "the daemon ends");
    const known = error instanceof ForkdError ? error : new ForkdError("DAEMON_FAILED", messageOf(error), { cause: error });
    tellStarter({ error: known.message, code: known.code, hint: known.hint });
    return 1;
  }
}

function parseOptions(args: string[]): Record<string, string | boolean | undefined> {
  try {
    return parseArgs({ args, options: CONFIG_OPTIONS, allowPositionals: false }).values as Record<string, string | boolean | undefined>;
  } catch (error) {
    throw new ForkdError("BAD_CONFIG", `Cannot read the options: ${messageOf(error)}`, { cause: error });
  }
}

/** First signal: graceful stop, also during the start; SIGTERM leaves the cluster first. Second signal: default action, immediate exit */
function installSignals(): { hand: (daemon: Daemon, log: Logger) => void } {
  let daemon: Daemon | null = null;
  let isAskedToStop = false;
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    process.on(name, () => {
      if (isAskedToStop) {
        process.removeAllListeners(name);
        process.kill(process.pid, name);
        return;
      }
      isAskedToStop = true;
      void (name === "SIGTERM" ? daemon?.leave() : daemon?.stop({ killSandboxes: false }));
    });
  }
  process.on("SIGHUP", () => void daemon?.reload());
  return {
    hand: (started, log) => {
      daemon = started;
      if (!isAskedToStop) return;
      log.info("asked to stop while starting");
      void daemon.stop({ killSandboxes: false });
    },
  };
}

/** Exits on an unexpected error, because the state is undefined. Sandboxes keep running; the next daemon adopts them */
function installFatal(log: Logger): void {
  const die = (error: unknown): void => {
    log.fatal({ err: error }, "unexpected error; the daemon ends at once");
    // oxlint-disable-next-line unicorn/no-process-exit -- continuing would act on an undefined state
    process.exit(1);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
}

function tellStarter(line: object): void {
  const descriptor = readyDescriptor();
  if (descriptor === null) return;
  try {
    writeSync(descriptor, `${JSON.stringify(line)}\n`);
    closeSync(descriptor);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // the parent closed the pipe without waiting
    if (code !== "EPIPE" && code !== "EBADF") throw error;
  }
}
