// The content of a squashfs, as squashfs-tools list it.

import { run } from "../../../src/host/command.ts";

/** path → `mode owner`, and the target of a link */
export async function listSquashfs(path: string): Promise<Map<string, string>> {
  const { stdout } = await run(["unsquashfs", "-q", "-lln", path]);
  const entries = new Map<string, string>();
  for (const line of stdout.split("\n")) {
    const match = /^(\S{10}) (\d+\/\d+)\s+\d[\d, ]*\s\d{4}-\d\d-\d\d \d\d:\d\d squashfs-root(\/.*)?$/.exec(line);
    if (match === null) continue;
    const [path_ = "", target] = (match[3] ?? "/").split(" -> ");
    entries.set(path_, `${match[1]} ${match[2]}${target === undefined ? "" : ` -> ${target}`}`);
  }
  return entries;
}

export async function catSquashfs(path: string, file: string): Promise<string> {
  return (await run(["unsquashfs", "-cat", path, file])).stdout;
}
