// Connects to a daemon: one at an address, or this user's own, which is started if needed.

import { lstat } from "node:fs/promises";
import { connect as connectSocket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { checkPaths } from "@forkd/runtime/paths";
import { Controller } from "forkd";
import { startDaemon } from "./process.ts";
import { codeOf, failure } from "../errors.ts";
import { paths } from "./paths.ts";
import { working } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";
import type { Paths } from "./paths.ts";

/** A daemon that is started implicitly ends when it is idle, and opens no port */
const AUTOSTART_ARGS = ["--bind", "none", "--exit-when-idle-secs", "600"];
/** Label of a daemon without a port */
export const NO_ADDRESS = "none; for a port: forkd down && forkd up --bind 127.0.0.1:8889";
/** How long a command that lost a start race tries to reach the daemon of the winner */
const RIVAL_MS = 10_000;
const RIVAL_POLL_MS = 50;
/** No limit: a user can press Ctrl-C, and a script can use timeout(1) */
const PATIENCE_MS = 0;
/** Errors of a socket without a listener */
const NOBODY = new Set(["ENOENT", "ECONNREFUSED"]);

export type Connection = { controller: Controller; /** whether this command started the daemon */ started: boolean };

export type ConnectOptions = { program?: string | undefined; rivalMs?: number };

/** The running daemon */
export async function connect(cli: Cli, opts: ConnectOptions = {}): Promise<Controller> {
  return (await connectOrStart(cli, opts)).controller;
}

export async function connectOrStart(cli: Cli, opts: ConnectOptions = {}): Promise<Connection> {
  const running = await connectIfRunning(cli);
  if (running) return { controller: running, started: false };
  const where = paths();
  if (!cli.autostart) {
    throw failure("DAEMON_UNREACHABLE", `No daemon answers at ${where.socket}.`, "Start it with 'forkd up', or leave --no-autostart out.");
  }
  return startOwn(cli, AUTOSTART_ARGS, opts);
}

/** This user's daemon, with these options, or the one that another command started at the same moment */
export async function startOwn(cli: Cli, args: string[], opts: ConnectOptions = {}): Promise<Connection> {
  const where = paths();
  const started = await working("Starting the daemon", async () => startOrJoin(cli, where, args, opts));
  return { controller: localController(cli, where), started };
}

/** Without a key the daemon cancels a creation when the command is interrupted; with one it would complete it */
export const ABORTABLE = { idempotencyKey: null } as const;

/** undefined: this user's daemon is not running. A daemon at an address is assumed to run */
export async function connectIfRunning(cli: Cli): Promise<Controller | undefined> {
  if (cli.daemonUrl) {
    const { daemonUrl: url, daemonToken: token = "", project = "" } = cli;
    return new Controller({ url, token, project, timeoutMs: PATIENCE_MS });
  }
  const where = paths();
  return (await answers(where)) ? localController(cli, where) : undefined;
}

/** Whether a process listens on the socket of this user's daemon */
async function answers(where: Paths): Promise<boolean> {
  checkPaths(where);
  await refuseForeignFolder(where.run);
  try {
    await new Promise<void>((done, reject) => {
      const socket = connectSocket(where.socket);
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.destroy();
        done();
      });
    });
    return true;
  } catch (error) {
    if (NOBODY.has(codeOf(error) ?? "")) return false;
    throw error;
  }
}

/** The socket's owner needs no token; a token for another daemon must not be sent to this one */
function localController({ project = "" }: Cli, where: Paths): Controller {
  return new Controller({ socket: where.socket, token: "", project, timeoutMs: PATIENCE_MS });
}

/** True: this command started the daemon. False: another command was faster */
async function startOrJoin(cli: Cli, where: Paths, args: string[], opts: ConnectOptions): Promise<boolean> {
  try {
    await startDaemon({ args, paths: where, signal: cli.signal, program: opts.program });
    return true;
  } catch (error) {
    if (codeOf(error) !== "DAEMON_RUNNING") throw error;
    const end = Date.now() + (opts.rivalMs ?? RIVAL_MS);
    while (Date.now() < end) {
      if (await answers(where)) return false;
      await sleep(RIVAL_POLL_MS, undefined, { signal: cli.signal });
    }
    throw error;
  }
}

/** In a folder that another user could have created, that user could listen */
async function refuseForeignFolder(run: string): Promise<void> {
  try {
    const info = await lstat(run);
    const uid = process.getuid?.() ?? 0;
    if (info.isDirectory() && info.uid === uid && (info.mode & 0o022) === 0) return;
    throw failure(
      "HOME_UNSAFE",
      `Cannot use ${run}: it belongs to uid ${info.uid} with mode ${(info.mode & 0o777).toString(8)}.`,
      "The folder must be yours, and others must not be able to write to it; choose another one with FORKD_RUN.",
    );
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}
