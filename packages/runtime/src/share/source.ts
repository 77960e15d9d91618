// Checks which host folders may be shared, and where in a guest.

import { realpath, stat } from "node:fs/promises";
import { posix } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { holdsNoFiles } from "./hidden.ts";
import type { Share } from "./server.ts";

/** Folders that every guest needs unchanged */
const TAKEN = ["/", "/dev", "/etc", "/proc", "/run", "/sys"];
const TAKEN_BELOW = ["/dev", "/proc", "/run/forkd", "/sys"];

/** The shares with their sources' real paths; throws SHARE_FAILED */
export async function checkShares(shares: readonly Share[], home: Home): Promise<Share[]> {
  for (const { source, target } of shares) checkTarget(source, target);
  for (const [at, { source, target }] of shares.entries()) {
    const other = shares.find((share, index) => index !== at && isBelow(target, share.target));
    if (other) throw refused(source, `its target ${target} is equal to or below that of ${other.source}`);
  }
  return Promise.all(shares.map(async ({ source, target }) => ({ source: await checkSource(source, home), target })));
}

/** Whether a path is equal to or below another one; both absolute and normalised */
export function isBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === "/" ? "/" : `${folder}/`);
}

async function checkSource(source: string, home: Home): Promise<string> {
  if (!posix.isAbsolute(source) || source.includes("\0")) throw refused(source, "the path must be absolute");
  const path = await realpath(source).catch((error: NodeJS.ErrnoException) => {
    throw refused(source, error.code === "ENOENT" ? "it does not exist" : messageOf(error), error);
  });
  if (!(await stat(path)).isDirectory()) throw refused(source, "it is not a folder");
  if (path === "/") throw refused(source, "it is the root folder of the host", undefined, "Share the folder that is needed.");
  for (const own of await Promise.all([home.root, home.run].map(async (folder) => realpath(folder))))
    if (isBelow(path, own)) throw refused(source, "it belongs to the daemon");
  if (await holdsNoFiles(path)) throw refused(source, "its file system holds no ordinary files");
  return path;
}

function checkTarget(source: string, target: string): void {
  const why =
    !posix.isAbsolute(target) || target.includes("\0") || posix.normalize(target) !== target || (target.endsWith("/") && target !== "/")
      ? `its target ${JSON.stringify(target)} must be an absolute path without "." and ".."`
      : TAKEN.includes(target) || TAKEN_BELOW.some((folder) => isBelow(target, folder))
        ? `the guest needs ${target} itself`
        : undefined;
  if (why !== undefined) throw refused(source, why);
}

function refused(source: string, why: string, cause?: unknown, hint?: string): ForkdError {
  return new ForkdError("SHARE_FAILED", `Cannot share ${source}: ${why}.`, { cause, ...(hint ? { hint } : {}) });
}
