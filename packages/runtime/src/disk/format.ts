// A new disk: a sparse file with an empty ext4 in it.

import { open } from "node:fs/promises";
import { run } from "../host/command.ts";
import { searchPath } from "../util/find-program.ts";
import { diskFailure } from "./layer.ts";

const MIB = 1024 * 1024;

/**
 * Independent of the host's mke2fs.conf. No journal: it recovers a file system after a crash of its machine, but here memory and disk
 * are saved together and end together. Without a journal less is written, and the guest has all of the disk.
 */
const FEATURES =
  "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,huge_file,large_file,metadata_csum,sparse_super,64bit";

export async function formatDisk(path: string, sizeMiB: number, signal?: AbortSignal): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.truncate(sizeMiB * MIB);
  try {
    await run(formatArgs(path), { signal, env: { ...process.env, PATH: searchPath(), LC_ALL: "C" } });
  } catch (error) {
    throw diskFailure(error);
  }
}

export function formatArgs(path: string): string[] {
  return ["mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-O", FEATURES, path];
}
