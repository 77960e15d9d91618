// Decides what of a foreign archive may enter an image. Images come from strangers: everything odd is refused, by name.

import { ForkdError } from "../errors.ts";
import { showPath } from "./tar-read.ts";
import type { TarHeader } from "./tar-read.ts";

const MAX_PATH = 4095;
const MAX_NAME = 255;
/** Nodes every image has; the guest gets its own /dev, so they are left out */
const STANDARD_DEVICES = new Set(["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"].map((name) => `dev/${name}`));
/** Attributes that mean something in a guest; overlay and SELinux marks of the machine that made the image do not */
const KEPT_XATTR = /^(user\..+|security\.capability)$/;

/** The path as components below the root; throws IMAGE_INVALID for one that leads out */
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

/** Whether an entry is kept or left out; throws IMAGE_INVALID for one that must not be in an image */
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

export function keptXattrs(xattrs: ReadonlyMap<string, Buffer>): Map<string, Buffer> {
  return new Map([...xattrs].filter(([name]) => KEPT_XATTR.test(name)));
}

export function refused(label: string, what: string, path: string, why: string): ForkdError {
  return new ForkdError("IMAGE_INVALID", `Refused ${label}: ${what} ${showPath(path)}: ${why}.`);
}
