// Folders between this machine and a sandbox, as archives.

import { chmod, lstat, mkdir, mkdtemp, readdir, rename, rm, stat, unlink } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { codeOf, failure } from "../errors.ts";
import { packFolder, unpackInto } from "./host-tar.ts";

import type { Controller } from "forkd";
import type { Dirent } from "node:fs";
import type { Copied, GuestPlace, Transfer } from "./stream.ts";

const OWNER_WRITES = 0o200;

/** As cp -r: below an existing folder, else under exactly this name. `FOLDER/.` means the contents of the folder */
export async function copyTreeIn(forkd: Controller, folder: string, to: GuestPlace, opts: Transfer): Promise<Copied> {
  const call = { user: opts.user, signal: opts.signal };
  const kind = await kindInGuest(forkd, to, opts);
  if (kind !== undefined && kind !== "directory") throw noFolder(`${to.sandbox}:${to.path}`);
  const name = isContent(folder) ? "" : basename(resolve(folder));
  const path = kind === undefined ? posix.resolve(to.path) : posix.join(to.path, name);
  // the daemon creates missing folders; cp does so only with an option
  if (kind === undefined && !opts.parents) await forkd.statFile(to.sandbox, posix.dirname(path), { ...call, follow: true });
  let bytes = 0;
  const archive = counted(packFolder(folder, opts.signal), (done) => opts.report((bytes = done), undefined));
  await forkd.writeTar(to.sandbox, path, archive, call);
  return { from: folder, to: `${to.sandbox}:${path}`, bytes };
}

/** Copies a folder out of a sandbox. Only files, folders and links are copied */
export async function copyTreeOut(forkd: Controller, from: GuestPlace, to: string, opts: Transfer): Promise<Copied> {
  const isFolder = await isFolderHere(to);
  const name = isContent(from.path) ? "" : posix.basename(posix.resolve(from.path));
  const target = resolve(isFolder ? join(to, name) : to);
  // a link that an earlier copy created must not redirect this one
  const there = name === "" ? undefined : await lstatOrNothing(target);
  if (there !== undefined && !there.isDirectory()) throw noFolder(target);
  if (opts.parents) await mkdir(dirname(target), { recursive: true });
  let bytes = 0;
  const call = { user: opts.user, signal: opts.signal, plain: true };
  const archive = counted(forkd.readTar(from.sandbox, from.path, call), (done) => opts.report((bytes = done), undefined));
  await unpackTo(target, archive, { isThere: isFolder && (name === "" || there !== undefined), signal: opts.signal });
  return { from: `${from.sandbox}:${from.path}`, to: target, bytes };
}

/** Extracts beside the target, or inside it if it exists, and moves everything to its place when the archive is complete */
export async function unpackTo(
  target: string,
  archive: AsyncIterable<Uint8Array>,
  opts: { isThere: boolean; signal: AbortSignal },
): Promise<void> {
  // closed to other users, whatever mode the archive has for the folder inside it
  const staging = await mkdtemp(join(opts.isThere ? target : dirname(target), ".forkd-"));
  try {
    const tree = join(staging, "tree");
    await mkdir(tree);
    await unpackInto(tree, archive, opts.signal);
    await dropSpecialFiles(tree);
    if (opts.isThere) {
      await merge(tree, target, refuseConflict);
      await merge(tree, target, move);
    } else await move(tree, target);
  } finally {
    await removeTree(staging);
  }
}

/** Devices, pipes and sockets, which only a malicious guest sends */
async function dropSpecialFiles(folder: string): Promise<void> {
  for (const entry of await entriesOf(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await dropSpecialFiles(path);
    else if (!entry.isFile() && !entry.isSymbolicLink()) await unlink(path);
  }
}

/** Visits the entries to move. No link in the target is followed: an earlier copy may have created it */
async function merge(from: string, to: string, visit: (from: string, to: string) => Promise<void>): Promise<void> {
  for (const entry of await entriesOf(from)) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    const there = await lstatOrNothing(target);
    if (entry.isDirectory() && there?.isDirectory()) await merge(source, target, visit);
    else await visit(source, target);
  }
}

async function refuseConflict(from: string, to: string): Promise<void> {
  const there = await lstatOrNothing(to);
  if (there === undefined) return;
  if ((await lstat(from)).isDirectory()) throw noFolder(to);
  if (there.isDirectory())
    throw failure("EXISTS", `Cannot copy a file to ${to}: it is a folder.`, "Remove it first, or choose another destination.");
}

/** Only root can move a folder that is not writable */
async function move(from: string, to: string): Promise<void> {
  const found = await lstat(from);
  const isClosed = found.isDirectory() && (found.mode & OWNER_WRITES) === 0;
  if (isClosed) await chmod(from, found.mode | OWNER_WRITES);
  await rename(from, to);
  if (isClosed) await chmod(to, found.mode);
}

async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if (codeOf(error) !== "EACCES") throw error;
    await openUp(path);
    await rm(path, { recursive: true, force: true });
  }
}

/** Folders that the archive made unreadable could be removed only by root */
async function openUp(folder: string): Promise<void> {
  await chmod(folder, 0o700);
  for (const entry of await readdir(folder, { withFileTypes: true })) if (entry.isDirectory()) await openUp(join(folder, entry.name));
}

/** Only entries of readable folders: a user who cannot read a folder cannot create a device in it */
async function entriesOf(folder: string): Promise<Dirent[]> {
  try {
    return await readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (codeOf(error) === "EACCES") return [];
    throw error;
  }
}

async function* counted(chunks: AsyncIterable<Uint8Array>, report: (done: number) => void): AsyncGenerator<Uint8Array> {
  let done = 0;
  for await (const chunk of chunks) {
    done += chunk.length;
    report(done);
    yield chunk;
  }
}

async function kindInGuest(forkd: Controller, { sandbox, path }: GuestPlace, opts: Transfer): Promise<string | undefined> {
  try {
    return (await forkd.statFile(sandbox, path, { follow: true, user: opts.user, signal: opts.signal })).kind;
  } catch (error) {
    if (codeOf(error) === "FILE_NOT_FOUND") return undefined;
    throw error;
  }
}

async function isFolderHere(path: string): Promise<boolean> {
  try {
    if ((await stat(path)).isDirectory()) return true;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
  throw noFolder(path);
}

async function lstatOrNothing(path: string): Promise<Awaited<ReturnType<typeof lstat>> | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** `FOLDER/.`: its contents are copied into the destination itself */
function isContent(path: string): boolean {
  return /(^|\/)\.\/*$/.test(path);
}

function noFolder(path: string): Error {
  return failure(
    "EXISTS",
    `Cannot copy a folder to ${path}: it is there and is no folder.`,
    "Remove it first, or choose another destination.",
  );
}
