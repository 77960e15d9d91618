// Imports an image from a file: a `docker save` archive, an OCI layout, or a tar of a root file system.

import { createReadStream, createWriteStream } from "node:fs";
import { constants, open, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { checkQualifiedName } from "../util/name.ts";
import type { Progress } from "../util/progress.ts";
import { indexArchive } from "./archive-index.ts";
import type { ArchiveFiles, ImportedImage } from "./archive-index.ts";
import { compressionOf, unpack } from "../archive/decompress.ts";
import { readDockerArchive } from "./docker-archive.ts";
import { flattenLayers } from "./layers.ts";
import { DEFAULT_CONFIG } from "./manifest.ts";
import { readOciLayout } from "./oci-layout.ts";
import { DEFAULT_MAX_BYTES } from "./squashfs.ts";
import type { ConfinementPolicy } from "../host/confined.ts";
import { withStaging } from "../host/staging.ts";
import { ImageStore } from "./store.ts";
import type { StoredImage } from "./store.ts";

export type ImportOpts = {
  name: string;
  /** limit of the unpacked size in `bytes` */
  maxBytes?: number | undefined;
  confinement?: ConfinementPolicy | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/**
 * Accepts .tar, .tar.gz, .tar.zst and .tar.xz files, recognised by content, and OCI layout folders. A folder with a root file system
 * is refused: an ordinary user cannot read it with its owners, so a tar is needed.
 */
export async function importImage(home: Home, path: string, opts: ImportOpts): Promise<StoredImage> {
  checkQualifiedName("Image name", opts.name);
  const file = resolve(path);
  const maxBytes = opts.maxBytes ?? DEFAULT_MAX_BYTES;
  const isFolder = await isDirectory(file);
  try {
    return await withStaging(home, async (staging) => {
      const image = isFolder
        ? await fromFolder(file)
        : await fromArchive(await plainTar(file, staging, maxBytes, opts), basename(file), opts.signal);
      const rootfs = join(staging, "rootfs.squashfs");
      await flattenLayers(image.layers, rootfs, {
        maxBytes,
        whiteouts: image.format !== "rootfs",
        confinement: opts.confinement,
        signal: opts.signal,
        progress: opts.progress,
      });
      const source = { kind: "import" as const, file: basename(file), format: image.format };
      return new ImageStore(home).add({ rootfsTmpPath: rootfs, name: opts.name, config: image.config, source, signal: opts.signal });
    });
  } catch (error) {
    if (opts.signal?.aborted && !(error instanceof ForkdError))
      throw new ForkdError("CANCELLED", "The import was cancelled.", { cause: error });
    throw error;
  }
}

async function fromFolder(dir: string): Promise<ImportedImage> {
  const files: ArchiveFiles = {
    label: basename(dir),
    // Links are not followed: a layout names its blobs by digest, and must not read other files of the host.
    open: async (name) => openRegular(join(dir, name)),
    size: async (name) => sizeOfRegular(join(dir, name)),
  };
  if ((await files.size("index.json")) === undefined) {
    throw new ForkdError("BAD_REQUEST", `Cannot import the folder ${dir}: it is not an OCI layout.`, {
      hint: `To import a root file system, make a tar of it as root: tar --xattrs --numeric-owner -C ${dir} -cf rootfs.tar .`,
    });
  }
  return readOciLayout(files);
}

async function fromArchive(tar: string, label: string, signal: AbortSignal | undefined): Promise<ImportedImage> {
  const files = await indexArchive(tar, label, signal);
  const docker = await readDockerArchive(files);
  if (docker !== undefined) return docker;
  if ((await files.size("index.json")) !== undefined && (await files.size("oci-layout")) !== undefined) return readOciLayout(files);
  return { format: "rootfs", config: DEFAULT_CONFIG, layers: [{ label, open: () => createReadStream(tar, { highWaterMark: 1 << 20 }) }] };
}

/** The archive itself, or its unpacked copy in the staging folder: members are read later by offset */
async function plainTar(file: string, staging: string, maxBytes: number, opts: ImportOpts): Promise<string> {
  if (compressionOf(await firstBytes(file)) === "none") return file;
  opts.progress?.({ step: `Unpacking ${basename(file)}` });
  const copy = join(staging, "archive.tar");
  const unpacked = unpack(createReadStream(file, { highWaterMark: 1 << 20 }), {
    label: basename(file),
    budget: { maxBytes, unpacked: 0 },
    confinement: opts.confinement,
    signal: opts.signal,
  });
  await pipeline(unpacked, createWriteStream(copy));
  return copy;
}

async function firstBytes(file: string): Promise<Buffer> {
  const handle = await open(file, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(6), 0, 6, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

async function openRegular(path: string): Promise<Readable> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  return handle.createReadStream({ highWaterMark: 1 << 20 });
}

async function sizeOfRegular(path: string): Promise<number | undefined> {
  try {
    const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const info = await handle.stat();
      return info.isFile() ? info.size : undefined;
    } finally {
      await handle.close();
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ELOOP" || code === "ENOTDIR") return undefined;
    throw error;
  }
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch (error) {
    throw new ForkdError("BAD_REQUEST", `Cannot import ${path}: ${messageOf(error)}.`, { cause: error });
  }
}
