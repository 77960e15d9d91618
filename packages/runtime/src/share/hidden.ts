// Host files that a share never shows, wherever they are below it.

import type { BigIntStats } from "node:fs";
import { stat, statfs } from "node:fs/promises";
import type { Home } from "../home.ts";

/** File systems that expose processes, the host's kernel and its settings (linux/magic.h) */
const NO_FILES: ReadonlySet<bigint> = new Set([
  0x9fa0n, // proc
  0x62656572n, // sysfs
  0x64626720n, // debugfs
  0x74726163n, // tracefs
  0x73636673n, // securityfs
  0x62656570n, // configfs
  0x27e0ebn, // cgroup
  0x63677270n, // cgroup2
  0xcafe4a11n, // bpf
  0x6165676cn, // pstore
  0xde5e81e4n, // efivarfs
  0xf97cff8cn, // selinuxfs
  0x6e736673n, // nsfs
  0x65735543n, // fusectl
]);

/** The daemon's own folders */
export type Hidden = readonly { dev: bigint; ino: bigint }[];

export async function hiddenFrom(home: Home): Promise<Hidden> {
  return Promise.all([home.root, home.run].map(async (path) => stat(path, { bigint: true })));
}

export function isHidden(hidden: Hidden, found: BigIntStats): boolean {
  return found.isDirectory() && hidden.some(({ dev, ino }) => dev === found.dev && ino === found.ino);
}

/** Whether a path is on a file system that does not hold ordinary files */
export async function holdsNoFiles(path: string): Promise<boolean> {
  return NO_FILES.has((await statfs(path, { bigint: true })).type);
}
