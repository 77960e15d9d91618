// Records the order in which files and folders are synced to disk.

import { open, readlink, type FileHandle } from "node:fs/promises";
import { relative } from "node:path";
import type { TestContext } from "node:test";

/** Paths below a folder; `fail`: the error of a sync */
export async function recordSyncs(
  t: TestContext,
  root: string,
  fail: (path: string) => Error | undefined = () => undefined,
): Promise<string[]> {
  const syncs: string[] = [];
  await using handle = await open(root);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  const sync = Object.getOwnPropertyDescriptor(prototype, "sync")?.value as (this: FileHandle) => Promise<void>;
  t.mock.method(prototype, "sync", async function (this: FileHandle) {
    const path = relative(root, await readlink(`/proc/self/fd/${this.fd}`));
    syncs.push(path);
    const failure = fail(path);
    if (failure) throw failure;
    await sync.call(this);
  });
  return syncs;
}
