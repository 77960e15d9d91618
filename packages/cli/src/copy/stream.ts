// Files between this machine and a sandbox, as streams.

import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { posix } from "node:path";
import { codeOf, failure } from "../errors.ts";
import { writeBytes } from "../terminal/output.ts";

import type { Controller } from "forkd";

const MODE_BITS = 0o7777;
/** Set-user-id, set-group-id and sticky bits are not copied out of a sandbox */
const LOCAL_MODE_BITS = 0o777;

/** `sandbox` undefined: this machine; path "-": a standard stream */
export type Place = { sandbox: string | undefined; path: string };
export type GuestPlace = { sandbox: string; path: string };

export type Transfer = {
  signal: AbortSignal;
  report: (done: number, total: number | undefined) => void;
  parents: boolean;
  /** user of the guest */
  user: string | undefined;
};

export type Copied = { from: string; to: string; bytes: number };

/** ID:/path is a path in a sandbox; ./a:/b is a local one */
export function parsePlace(text: string): Place {
  const match = /^([A-Za-z0-9_][A-Za-z0-9._-]{0,63}):(\/.*)$/s.exec(text);
  return match?.[1] !== undefined && match[2] !== undefined ? { sandbox: match[1], path: match[2] } : { sandbox: undefined, path: text };
}

/** The error of an argument such as ID:path, which was probably meant as a path in a sandbox; undefined: none */
export function relativePlace(text: string): string | undefined {
  const match = /^([A-Za-z0-9_][A-Za-z0-9._-]{0,63}):([^/].*)?$/s.exec(text);
  if (!match) return undefined;
  return `'${text}' is not a path in a sandbox: a path there begins with '/', such as ${match[1]}:/${match[2] ?? "tmp"}.`;
}

export async function copyIn(forkd: Controller, file: string, to: GuestPlace, opts: Transfer): Promise<Copied> {
  const source = file === "-" ? undefined : await stat(file);
  if (source?.isDirectory()) throw folderError(file);
  const path = await guestPath(forkd, to, file === "-" ? "stdin" : basename(file), opts);
  const content = counted(source ? createReadStream(file) : process.stdin, source?.isFile() ? source.size : undefined, opts);
  const mode = source?.isFile() ? { mode: (source.mode & MODE_BITS).toString(8).padStart(3, "0") } : {};
  const { bytes } = await forkd.writeFile(to.sandbox, path, content, {
    ...mode,
    ...(opts.parents ? { parents: true } : {}),
    user: opts.user,
    signal: opts.signal,
  });
  return { from: file, to: `${to.sandbox}:${path}`, bytes };
}

export async function copyOut(forkd: Controller, from: GuestPlace, file: string, opts: Transfer): Promise<Copied> {
  const call = { user: opts.user, signal: opts.signal };
  const source = await forkd.statFile(from.sandbox, from.path, { ...call, follow: true });
  if (source.kind === "directory") throw folderError(`${from.sandbox}:${from.path}`);
  const content = counted(forkd.readFileStream(from.sandbox, from.path, call), source.kind === "file" ? source.size : undefined, opts);
  if (file === "-") return { from: from.path, to: "-", bytes: await drain(content, async (chunk) => writeBytes("stdout", chunk)) };
  const isInFolder = await isFolder(file);
  const target = isInFolder ? join(file, posix.basename(from.path)) : file;
  if (opts.parents) await mkdir(dirname(target), { recursive: true });
  const mode = source.kind === "file" ? Number.parseInt(source.mode, 8) & LOCAL_MODE_BITS : 0o644;
  // the guest chose the name, which may be a link that an earlier copy created: the link is replaced, not followed
  const special = !isInFolder && (await isSpecial(target));
  return { from: `${from.sandbox}:${from.path}`, to: target, bytes: await writeWhole(target, content, mode, special) };
}

/** If the destination is a folder, the file is created inside it under its own name */
async function guestPath(forkd: Controller, to: GuestPlace, name: string, opts: Transfer): Promise<string> {
  if (to.path.endsWith("/")) return posix.join(to.path, name);
  try {
    const info = await forkd.statFile(to.sandbox, to.path, { follow: true, user: opts.user, signal: opts.signal });
    return info.kind === "directory" ? posix.join(to.path, name) : to.path;
  } catch (error) {
    // the destination does not exist
    if (codeOf(error) === "FILE_NOT_FOUND") return to.path;
    throw error;
  }
}

/** Written under a temporary name until complete, so that a failed copy leaves nothing. Devices and pipes are written directly */
export async function writeWhole(target: string, content: AsyncIterable<Uint8Array>, mode: number, special: boolean): Promise<number> {
  const temporary = special ? target : `${target}.${randomBytes(4).toString("hex")}.tmp`;
  try {
    await using handle = await open(temporary, special ? "w" : "wx", mode);
    const bytes = await drain(content, async (chunk) => {
      await handle.writeFile(chunk);
    });
    if (!special) {
      await handle.chmod(mode);
      await rename(temporary, target);
    }
    return bytes;
  } catch (error) {
    if (!special) await rm(temporary, { force: true });
    throw error;
  }
}

export async function drain(content: AsyncIterable<Uint8Array>, write: (chunk: Uint8Array) => Promise<void>): Promise<number> {
  let bytes = 0;
  for await (const chunk of content) {
    await write(chunk);
    bytes += chunk.length;
  }
  return bytes;
}

export async function* counted(
  content: AsyncIterable<Uint8Array | string>,
  total: number | undefined,
  opts: Pick<Transfer, "report">,
): AsyncGenerator<Uint8Array, void, undefined> {
  let done = 0;
  for await (const chunk of content) {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    done += bytes.length;
    opts.report(done, total);
    yield bytes;
  }
}

async function isFolder(path: string): Promise<boolean> {
  return (await statOrNothing(path))?.isDirectory() === true;
}

export async function isSpecial(path: string): Promise<boolean> {
  const info = await statOrNothing(path);
  return info !== undefined && !info.isFile();
}

async function statOrNothing(path: string): Promise<Awaited<ReturnType<typeof stat>> | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function folderError(path: string): Error {
  return failure("BAD_REQUEST", `Cannot copy ${path}: it is a folder.`, "Copy it with its contents: forkd cp -r.");
}
