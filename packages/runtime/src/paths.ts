// Paths of a store and its sockets, from the environment alone: every command finds the daemon of its store. Few
// imports, because the command line loads this file on each start. The SDKs have the same rules; tests compare them.

import { realpathSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { ForkdError, messageOf } from "./errors.ts";

/** Limit of a Unix socket's path */
const SOCKET_PATH_BYTES = 107;
/** Longest socket path below the run folder */
const LONGEST_SOCKET = "/rt-0123456789abcdef/sb-0123456789abcdef/agent";
/** Maximum length of a run folder's path */
export const MAX_RUN_BYTES: number = SOCKET_PATH_BYTES - LONGEST_SOCKET.length;
/** The operating system's limit, minus room for the names inside the store */
const MAX_HOME_BYTES = 3840;
const MAX_NAME_BYTES = 255;

const FNV_OFFSET = 0xcbf29ce484222325n;
const FNV_PRIME = 0x100000001b3n;

export type StorePaths = {
  /** the store, FORKD_HOME */
  home: string;
  /** sockets and logs of running VMs, FORKD_RUN */
  run: string;
};

/** A non-default store has its own run folder, whose name is derived from the store's path */
export function storePaths(env: NodeJS.ProcessEnv = process.env): StorePaths {
  const uid = process.getuid?.() ?? 0;
  const dataHome = env["XDG_DATA_HOME"] || join(homedir(), ".local", "share");
  const usual = uid === 0 ? "/var/lib/forkd" : join(dataHome, "forkd");
  const home = resolve(env["FORKD_HOME"] || usual);
  if (env["FORKD_RUN"]) return { home, run: resolve(env["FORKD_RUN"]) };
  const base = env["XDG_RUNTIME_DIR"] ? join(env["XDG_RUNTIME_DIR"], "forkd") : join(tmpdir(), `forkd-${uid}`);
  return { home, run: realPath(home) === realPath(usual) ? base : `${base}-${storeId(home)}` };
}

/** Id of a store: 64-bit FNV-1a of its real path. Not a secret; short enough for a socket path */
export function storeId(home: string): string {
  let hash = FNV_OFFSET;
  for (const byte of Buffer.from(realPath(home))) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * FNV_PRIME);
  return hash.toString(16).padStart(16, "0");
}

/** Throws BAD_CONFIG for an unusable path, without access to the file system */
export function checkPaths({ home, run }: StorePaths): void {
  const tooLong = Buffer.byteLength(home) > MAX_HOME_BYTES || home.split("/").some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES);
  if (tooLong) throw unusable("FORKD_HOME", home, "the path is too long for the operating system");
  const length = Buffer.byteLength(run);
  if (length > MAX_RUN_BYTES)
    throw unusable("FORKD_RUN", run, `it has ${length} bytes, and the paths of Unix sockets leave room for ${MAX_RUN_BYTES}`);
}

/**
 * Creates a folder of a store, or a run folder, with access for this user only; returns whether it is new. Throws
 * BAD_CONFIG on failure
 */
export async function makeFolder(path: string, variable: "FORKD_HOME" | "FORKD_RUN"): Promise<boolean> {
  try {
    return await makeAll(path);
  } catch (error) {
    throw unusable(variable, path, reasonOf(error), error);
  }
}

/** Node's `recursive` option loops without end if a folder cannot be created in an existing one, as in /proc */
async function makeAll(path: string, isLast = false): Promise<boolean> {
  try {
    await mkdir(path, { mode: 0o700 });
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await stat(path)).isDirectory()) return false;
    if (code !== "ENOENT" || isLast) throw error;
    await makeAll(dirname(path));
    return makeAll(path, true);
  }
}

export function unusable(variable: "FORKD_HOME" | "FORKD_RUN", path: string, why: string, cause?: unknown): ForkdError {
  const shown = path.length > 120 ? `${path.slice(0, 100)}…` : path;
  const hint = `Set ${variable} to ${variable === "FORKD_RUN" ? "a short path" : "a folder"} that you can write to.`;
  return new ForkdError("BAD_CONFIG", `Cannot use ${shown}: ${why}.`, { hint, cause });
}

/** Reason why a folder cannot be created or written, as text */
export function reasonOf(error: unknown): string {
  switch ((error as NodeJS.ErrnoException).code) {
    case "EROFS":
      return "its file system is read-only";
    case "EACCES":
    case "EPERM":
      return "this user may not write there";
    case "ENOTDIR":
    case "EEXIST":
      return "a part of the path is a file";
    case "ENOENT":
      return "no folder can be made there";
    case "ENOSPC":
    case "EDQUOT":
      return "the disk is full";
    default:
      return messageOf(error);
  }
}

/** Real path of the part that exists, followed by the rest */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // not created yet, or not accessible
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}
