// Huge pages for guest memory: files on a tmpfs that the host kernel fills with huge pages.

import { lstat, mkdir, readFile, realpath, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import { digestOf, hexOf } from "../util/digest.ts";

/** A tmpfs of most hosts */
export const DEFAULT_HUGEPAGES_DIR = "/dev/shm";

/**
 * Values of the mount option `huge` with which a file that is written gets huge pages. With `advise` only mappings get
 * them, and the images are written by other means.
 */
const GIVES_HUGE_PAGES = new Set(["always", "within_size"]);

/** A mount of /proc/self/mountinfo */
type Mount = { point: string; type: string; options: string[] };

/** Folder below a tmpfs for the images of one folder of flat images */
export function hugeFolder(hugepagesDir: string, flatDir: string): string {
  return join(hugepagesDir, `forkd-${hexOf(digestOf(Buffer.from(flatDir))).slice(0, 16)}`);
}

/** Throws HUGEPAGES_UNAVAILABLE if files in this folder would not get huge pages */
export async function checkHugePages(dir: string): Promise<void> {
  const place = await realpath(dir).catch(() => {
    throw unavailable(dir, "there is no such folder");
  });
  const why = hugePagesObstacle(place, await readFile("/proc/self/mountinfo", "utf8"));
  if (why !== undefined) throw unavailable(dir, why);
}

/** Makes the folder. Throws HUGEPAGES_UNAVAILABLE if it belongs to another user: the tmpfs may be writable by all */
export async function makeHugeFolder(folder: string): Promise<void> {
  await mkdir(folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw unavailable(folder, `it cannot be made (${error.code})`);
  });
  if (await isOwnFolder(folder)) return;
  const { uid, mode } = await lstat(folder);
  throw unavailable(folder, `it belongs to uid ${uid} with mode ${(mode & 0o777).toString(8)}`);
}

/** Whether there is such a folder and only this user can change it: another user may have made one, or a link */
export async function isOwnFolder(folder: string): Promise<boolean> {
  const found = await lstat(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  return found !== undefined && found.isDirectory() && found.uid === (process.getuid?.() ?? 0) && (found.mode & 0o077) === 0;
}

/** Removes the folder and its images, unless it belongs to another user */
export async function removeHugeFolder(folder: string): Promise<void> {
  if (await isOwnFolder(folder)) await rm(folder, { recursive: true, force: true });
}

/** Why files in a folder do not get huge pages; undefined: they do */
export function hugePagesObstacle(dir: string, mountinfo: string): string | undefined {
  const mount = mountOf(dir, mountinfo);
  if (mount?.type !== "tmpfs") return `it is not on a tmpfs but on ${mount?.type ?? "nothing"}`;
  const huge = mount.options.find((option) => option.startsWith("huge="))?.slice("huge=".length);
  if (huge !== undefined && GIVES_HUGE_PAGES.has(huge)) return undefined;
  return `its tmpfs is mounted ${huge === undefined ? "without the option huge" : `with huge=${huge}`}`;
}

/** The mount that is visible at a path: the longest mount point, and of equal ones the last */
function mountOf(dir: string, mountinfo: string): Mount | undefined {
  let best: Mount | undefined;
  for (const line of mountinfo.split("\n")) {
    const [before = "", after = ""] = line.split(" - ");
    const point = unescaped(before.split(" ")[4] ?? "");
    const [type = "", , options = ""] = after.split(" ");
    const isAround = point === "/" || dir === point || dir.startsWith(`${point}/`);
    if (point !== "" && isAround && point.length >= (best?.point.length ?? 0)) best = { point, type, options: options.split(",") };
  }
  return best;
}

/** Spaces and other separators are octal in mountinfo */
function unescaped(text: string): string {
  return text.replaceAll(/\\(\d{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

function unavailable(dir: string, why: string): ForkdError {
  return new ForkdError("HUGEPAGES_UNAVAILABLE", `Cannot use huge pages in ${dir}: ${why}.`, { details: { dir } });
}
