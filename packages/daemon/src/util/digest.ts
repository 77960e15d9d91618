// Digests as OCI writes them: `sha256:` and 64 digits.

import { createHash } from "node:crypto";

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** The digits alone, which can be the name of a file */
export function hexOf(digest: string): string {
  return digest.replace(/^sha256:/, "");
}
