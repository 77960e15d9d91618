// Downloads blobs into a cache: verified while streaming, and resumed where an earlier attempt ended.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { link, mkdir, open, readdir, rename, rm } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../util/digest.ts";
import { statIfThere } from "../util/stat-if-there.ts";
import { ForkdError, messageOf } from "../errors.ts";
import { isAlive, ownProcessId } from "../util/process-id.ts";
import { namesIn } from "../util/names-in.ts";
import type { ProcessId } from "../util/process-id.ts";
import type { Descriptor } from "./schema.ts";

/** Consecutive attempts without progress before a download fails */
const MAX_FRUITLESS = 5;
const STALL_MS = 60_000;
const WHOLE = /^[0-9a-f]{64}$/;
const PARTIAL = /^[0-9a-f]{64}\.(\d+)-(\d+)-[0-9a-z]+\.partial$/;

/** Source of blobs */
export type BlobSource = {
  /** Requests a blob from `offset`; `at` is the offset at which the answer begins, if successful */
  open(blob: Descriptor, offset: number): Promise<{ response: Response; at: number | undefined }>;
  /** Waits before the next attempt */
  pause(attempt: number): Promise<void>;
  failure(message: string, cause?: unknown): ForkdError;
};

export type BlobOpts = {
  signal?: AbortSignal | undefined;
  /** called with the received bytes; negative when an attempt starts again */
  onBytes?: (bytes: number) => void;
};

/** Partial files that this process is writing: two downloads of one blob must not share one */
const busy = new Set<string>();

/** Hard-links the verified blob to `dest`, which stays when the cache in `dir` is cleaned */
export async function downloadBlob(dir: string, source: BlobSource, blob: Descriptor, dest: string, opts: BlobOpts): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const hex = hexOf(blob.digest);
  const target = join(dir, hex);
  if (await linkIfThere(target, dest)) {
    opts.onBytes?.(blob.size);
    return;
  }
  const partial = await claimPartial(dir, hex);
  try {
    await fill(source, blob, partial, opts);
    await link(partial, dest);
    await rename(partial, target);
  } catch (error) {
    if (error instanceof ForkdError && error.code === "DIGEST_MISMATCH") await rm(partial, { force: true });
    throw error;
  } finally {
    busy.delete(partial);
  }
}

/** Removes blobs and partial downloads, except those that another download is writing */
export async function forgetBlobs(dir: string, blobs: readonly Descriptor[]): Promise<void> {
  const digits = new Set(blobs.map(({ digest }) => hexOf(digest)));
  const self = await ownProcessId();
  for (const name of await namesIn(dir)) {
    if (!digits.has(name.slice(0, 64))) continue;
    if (name.length > 64 && !(await isFree(join(dir, name), name, self))) continue;
    await rm(join(dir, name), { force: true });
  }
}

/** Abandoned partial downloads and unused blobs; removed unless `dryRun` */
export async function sweepDownloads(dir: string, opts: { dryRun: boolean }): Promise<{ name: string; bytes: number }[]> {
  const self = await ownProcessId();
  const swept: { name: string; bytes: number }[] = [];
  for (const name of await namesIn(dir)) {
    const path = join(dir, name);
    if (!WHOLE.test(name) && !(await isFree(path, name, self))) continue;
    const file = await statIfThere(path);
    if (!file) continue;
    swept.push({ name, bytes: file.blocks * 512 });
    if (!opts.dryRun) await rm(path, { force: true });
  }
  return swept;
}

async function fill(source: BlobSource, blob: Descriptor, path: string, opts: BlobOpts): Promise<void> {
  const file = await open(path, "a+", 0o600);
  try {
    let fruitless = 0;
    for (;;) {
      const before = (await file.stat()).size;
      try {
        await attempt(source, blob, file, path, opts);
        return;
      } catch (error) {
        if (opts.signal?.aborted) throw new ForkdError("CANCELLED", "The download was cancelled.");
        if (error instanceof ForkdError) throw error;
        const { code } = error as NodeJS.ErrnoException;
        if (code === "ENOSPC" || code === "EDQUOT")
          throw new ForkdError("NO_SPACE", "Cannot download: the disk is full.", { cause: error });
        fruitless = (await file.stat()).size > before ? 0 : fruitless + 1;
        if (fruitless >= MAX_FRUITLESS)
          throw source.failure(`The download of ${blob.digest.slice(0, 19)} broke off ${fruitless} times: ${messageOf(error)}.`, error);
        await source.pause(fruitless);
      }
    }
  } finally {
    await file.close();
  }
}

/** One request for the missing bytes; throws a ForkdError only when another attempt would not help */
async function attempt(source: BlobSource, blob: Descriptor, file: FileHandle, path: string, opts: BlobOpts): Promise<void> {
  let have = (await file.stat()).size;
  if (have > blob.size) {
    await file.truncate(0);
    have = 0;
  }
  let hash = createHash("sha256");
  if (have > 0) for await (const chunk of createReadStream(path, { end: have - 1 })) hash.update(chunk as Buffer);
  opts.onBytes?.(have);
  let reported = have;
  try {
    if (have < blob.size || blob.size === 0) {
      const { response, at } = await source.open(blob, have);
      if (at !== have) {
        await file.truncate(0);
        opts.onBytes?.(-have);
        have = reported = 0;
        hash = createHash("sha256");
      }
      if (!response.ok && response.status !== 416) {
        await response.body?.cancel();
        throw source.failure(`The server answered ${response.status} for the blob ${blob.digest.slice(0, 19)}.`);
      }
      if (at !== have) {
        await response.body?.cancel();
        throw new Error("the server did not continue where it was asked to");
      }
      for await (const chunk of unstalled(response)) {
        opts.signal?.throwIfAborted();
        have += chunk.length;
        if (have > blob.size) throw mismatch(blob, `it is longer than the ${blob.size} bytes its descriptor states`);
        hash.update(chunk);
        await file.appendFile(chunk);
        opts.onBytes?.(chunk.length);
        reported += chunk.length;
      }
      if (have < blob.size) throw new Error("the connection ended early");
    }
    if (`sha256:${hash.digest("hex")}` !== blob.digest) throw mismatch(blob, "its content has another digest");
    await file.sync();
  } catch (error) {
    opts.onBytes?.(-reported);
    throw error;
  }
}

/** The chunks of the body; fails when none arrives for a long time */
async function* unstalled(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      let timer: NodeJS.Timeout | undefined;
      const stalled = new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => reject(new Error(`nothing came for ${STALL_MS} ms`)), STALL_MS);
      });
      const next = await Promise.race([reader.read(), stalled]).finally(() => clearTimeout(timer));
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // Cancelling a failed body repeats its failure, which the reader above has reported.
    await reader.cancel().catch(() => undefined);
  }
}

/** A partial file for this process: a new one, or one whose owner has ended or given up */
async function claimPartial(dir: string, hex: string): Promise<string> {
  const self = await ownProcessId();
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    if (!name.startsWith(`${hex}.`) || !(await isFree(path, name, self))) continue;
    const mine = newPartial(dir, hex, self);
    try {
      await rename(path, mine);
      return mine;
    } catch (error) {
      busy.delete(mine);
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
  return newPartial(dir, hex, self);
}

async function isFree(path: string, name: string, self: ProcessId): Promise<boolean> {
  const match = PARTIAL.exec(name);
  if (match === null) return false;
  const owner = { pid: Number(match[1]), startTime: match[2] ?? "" };
  if (owner.pid === self.pid && owner.startTime === self.startTime) return !busy.has(path);
  return !(await isAlive(owner));
}

function newPartial(dir: string, hex: string, self: ProcessId): string {
  const path = join(dir, `${hex}.${self.pid}-${self.startTime}-${Math.random().toString(36).slice(2)}.partial`);
  busy.add(path);
  return path;
}

function mismatch(blob: Descriptor, why: string): ForkdError {
  return new ForkdError("DIGEST_MISMATCH", `Refused the blob ${blob.digest.slice(0, 19)}: ${why}.`);
}

async function linkIfThere(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}
