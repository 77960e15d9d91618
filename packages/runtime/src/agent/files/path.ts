// Paths inside the guest: text, or `base64:` and the bytes when they are not UTF-8.

import { isUtf8 } from "node:buffer";

/** No absolute path begins with it */
const BASE64 = "base64:";

/** The bytes for the guest: those of `base64:…`, else UTF-8 */
export function pathBytes(path: string): Buffer {
  return path.startsWith(BASE64) ? Buffer.from(path.slice(BASE64.length), "base64") : Buffer.from(path);
}

/** A path in the form that every call accepts */
export function pathText(bytes: Buffer): string {
  return isUtf8(bytes) ? bytes.toString() : BASE64 + bytes.toString("base64");
}
