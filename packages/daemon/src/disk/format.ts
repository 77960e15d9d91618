// A new disk: a sparse file with an empty ext4 in it.

import { open } from "node:fs/promises";
import { runDiskTool } from "./run-tool.ts";

const MIB = 1024 * 1024;

/**
 * Nothing depends on the host's mke2fs.conf. No journal: it brings a file system back after a crash of its machine, and here both are
 * saved together and end together. Without it less is written, and all of the disk is the guest's.
 */
const FEATURES =
  "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,huge_file,large_file,metadata_csum,sparse_super,64bit";

export async function formatDisk(path: string, sizeMiB: number, signal?: AbortSignal): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.truncate(sizeMiB * MIB);
  await runDiskTool(formatArgs(path), signal);
}

export function formatArgs(path: string): string[] {
  return ["mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-O", FEATURES, path];
}
