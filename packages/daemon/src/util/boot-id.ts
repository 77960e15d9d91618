// Which boot of the host this is: another one means that no process and no unwritten page of before is there.

import { readFile } from "node:fs/promises";

let known: Promise<string> | undefined;

export async function bootId(): Promise<string> {
  known ??= readFile("/proc/sys/kernel/random/boot_id", "utf8").then((text) => text.trim());
  return known;
}
