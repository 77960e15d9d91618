// Boot id of the host. A different id means that processes and unwritten pages from before the restart are lost.

import { readFile } from "node:fs/promises";

let known: Promise<string> | undefined;

export async function bootId(): Promise<string> {
  known ??= readFile("/proc/sys/kernel/random/boot_id", "utf8").then((text) => text.trim());
  return known;
}
