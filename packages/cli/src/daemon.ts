// The way to a daemon: one at an address, or this user's own, which is started when nobody answers.

import { lstat } from "node:fs/promises";
import { connect as connectSocket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller } from "forkd";
import { startDaemon } from "./daemon-process.ts";
import { codeOf, failure } from "./errors.ts";
import { paths } from "./paths.ts";
import { working } from "./progress.ts";

import type { Cli } from "./cli.ts";
import type { Paths } from "./paths.ts";

/** A daemon that nobody asked for ends by itself, and opens no port */
const AUTOSTART_ARGS = ["--bind", "none", "--exit-when-idle-secs", "600"];
/** How long the loser of two that start at once tries to reach the winner's daemon */
const RIVAL_MS = 10_000;
const RIVAL_POLL_MS = 50;
/** No limit: who waits at a terminal can press Ctrl-C, and a script has timeout(1) */
const PATIENCE_MS = 0;
/** Errors of a socket that nobody listens on */
const NOBODY = new Set(["ENOENT", "ECONNREFUSED"]);

export type Connection = { controller: Controller; /** whether this command started the daemon */ started: boolean };

export type ConnectOptions = { program?: string | undefined; rivalMs?: number };

/** The daemon, running */
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

/** This user's own daemon, with these options; or the one that somebody else started in the same moment */
export async function startOwn(cli: Cli, args: string[], opts: ConnectOptions = {}): Promise<Connection> {
  const where = paths();
  const started = await working("Starting the daemon", async () => startOrJoin(cli, where, args, opts));
  return { controller: localController(where), started };
}

/** A creation without a key is given up by the daemon when the command is interrupted; with one it would go on */
export const ABORTABLE = { idempotencyKey: null } as const;

/** undefined: this user has no daemon running. One at an address is taken to be there */
export async function connectIfRunning(cli: Cli): Promise<Controller | undefined> {
  if (cli.daemonUrl) return new Controller({ url: cli.daemonUrl, token: cli.daemonToken ?? "", timeoutMs: PATIENCE_MS });
  const where = paths();
  return (await answers(where)) ? localController(where) : undefined;
}

/** Whether somebody listens on the socket of this user's daemon */
async function answers(where: Paths): Promise<boolean> {
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

/** The socket's owner needs no token; one for another daemon must not go to this one */
function localController(where: Paths): Controller {
  return new Controller({ socket: where.socket, token: "", timeoutMs: PATIENCE_MS });
}

/** True: the daemon is ours. False: another command was faster, and its daemon is there */
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

/** In a folder that somebody else could have made, somebody else could listen */
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
