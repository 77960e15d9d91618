// Paths inside the guest: text where they are text, else the bytes they are.

import { isUtf8 } from "node:buffer";

/** No absolute path begins with it */
const BASE64 = "base64:";

/** What the guest gets: the bytes of `base64:…`, the UTF-8 of everything else */
export function pathBytes(path: string): Buffer {
  return path.startsWith(BASE64) ? Buffer.from(path.slice(BASE64.length), "base64") : Buffer.from(path);
}

/** A path that every call understands */
export function pathText(bytes: Buffer): string {
  return isUtf8(bytes) ? bytes.toString() : BASE64 + bytes.toString("base64");
}
