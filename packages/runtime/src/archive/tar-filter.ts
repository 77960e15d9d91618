// Decides which entries of an untrusted archive enter an image. Unusual entries are refused with an error that names them.

import { ForkdError } from "../errors.ts";
import { MAX_PATH, showPath } from "./tar-read.ts";
import type { TarHeader } from "./tar-read.ts";

const MAX_NAME = 255;
/** Device nodes that every image has; they are skipped, because the guest mounts its own /dev */
const STANDARD_DEVICES = new Set(["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"].map((name) => `dev/${name}`));
/** Linux's limit for one attribute value; here also the limit for all values of a file */
const MAX_XATTRS = 64 * 1024;
/** Attributes that have a meaning in a guest; overlay and SELinux attributes of the build machine have none */
const KEPT_XATTR = /^(user\..+|security\.capability)$/;

/** The path as components below the root; throws IMAGE_INVALID for a path that leaves the root */
export function pathComponents(path: string, what: string, label: string): string[] {
  if (path.startsWith("/")) throw refused(label, what, path, "its path is absolute");
  if (path.includes("\0")) throw refused(label, what, path, "its path holds a NUL byte");
  if (path.length > MAX_PATH) throw refused(label, what, path, `its path is longer than ${MAX_PATH} bytes`);
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  for (const part of parts) {
    if (part === "..") throw refused(label, what, path, "its path leads upwards ('..')");
    if (part.length > MAX_NAME) throw refused(label, what, path, `a name in its path is longer than ${MAX_NAME} bytes`);
  }
  return parts;
}

/** Whether an entry is kept or skipped; throws IMAGE_INVALID for one that an image must not contain */
export function judgeEntry(header: TarHeader, components: readonly string[], label: string): "keep" | "drop" {
  if (header.type === "char" || header.type === "block") {
    if (header.type === "char" && STANDARD_DEVICES.has(components.join("/"))) return "drop";
    throw refused(label, "entry", header.path, "it is a device node");
  }
  if (header.type === "symlink" && (header.linkname === "" || header.linkname.includes("\0") || header.linkname.length > MAX_PATH)) {
    throw refused(label, "entry", header.path, "it is a symbolic link without a usable target");
  }
  if (header.type !== "dir" && components.length === 0) throw refused(label, "entry", header.path, "it replaces the root folder");
  return "keep";
}

/** Copies, because a slice would keep the large buffer that it is part of in memory */
export function keptXattrs(header: TarHeader, label: string): ReadonlyMap<string, Buffer> {
  if (header.xattrs.size === 0) return header.xattrs;
  const kept = [...header.xattrs].filter(([name]) => KEPT_XATTR.test(name));
  if (kept.reduce((bytes, [name, value]) => bytes + name.length + value.length, 0) > MAX_XATTRS)
    throw refused(label, "entry", header.path, `its extended attributes are larger than ${MAX_XATTRS} bytes`);
  return new Map(kept.map(([name, value]) => [name, Buffer.from(new Uint8Array(value).buffer)]));
}

export function refused(label: string, what: string, path: string, why: string): ForkdError {
  return new ForkdError("IMAGE_INVALID", `Refused ${label}: ${what} ${showPath(path)}: ${why}.`);
}
