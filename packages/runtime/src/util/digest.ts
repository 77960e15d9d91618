// Digests in OCI's form: `sha256:` and 64 hexadecimal digits.

import { createHash } from "node:crypto";

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** The digits alone, usable as a file name */
export function hexOf(digest: string): string {
  return digest.replace(/^sha256:/, "");
}
