// What a copied file or folder holds, as one number: the same content is the same step.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { join } from "node:path";

const MODE_BITS = 0o777;

/** Names, modes, contents and links; neither times nor owners, which a copy does not keep */
export async function hashOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  // a link that is named itself means what it leads to
  const info = await stat(path);
  if (info.isDirectory()) await addFolder(hash, path);
  else await addFile(hash, path, info.mode);
  return hash.digest("hex");
}

type Hash = ReturnType<typeof createHash>;

async function addFolder(hash: Hash, folder: string): Promise<void> {
  for (const name of (await readdir(folder)).toSorted()) {
    const path = join(folder, name);
    const info = await lstat(path);
    hash.update(`\0${name}\0`);
    if (info.isDirectory()) {
      hash.update(`folder ${info.mode & MODE_BITS}\0`);
      await addFolder(hash, path);
      hash.update("\0end\0");
    } else if (info.isSymbolicLink()) hash.update(`link ${await readlink(path)}\0`);
    else await addFile(hash, path, info.mode);
  }
}

/** Its own hash, so that no content can look like the beginning of the next file */
async function addFile(hash: Hash, path: string, mode: number): Promise<void> {
  const content = createHash("sha256");
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) content.update(chunk);
  hash.update(`file ${mode & MODE_BITS} ${content.digest("hex")}\0`);
}
