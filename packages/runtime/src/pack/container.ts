// A pack as one file or stream: a tar of exactly one form, so that every byte is either valid or refused.

import { createReadStream } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../util/digest.ts";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "../archive/tar-write.ts";
import { ForkdError } from "../errors.ts";
import { ByteSource } from "../util/byte-source.ts";
import { corrupt, checkSum, Summer, writeFailure, type Sum } from "./compress.ts";
import { MAX_MANIFEST_BYTES, packInvalid, parsePackManifest, type PackManifest } from "./manifest.ts";
import type { Pack } from "./prepare.ts";
import type { PackSource } from "./receive.ts";
import { encodeSignatures, MAX_SIGNATURES_BYTES, parseSignatures } from "./signature.ts";

const BLOCK = 512;
const CHUNK = 1024 * 1024;
const NAME = /^(manifest|signatures|blobs)\/sha256\/([0-9a-f]{64})$/;
type Part = "manifest" | "signatures" | "blobs";

/** The bytes of a pack, as they are stored and sent */
export async function* packBytes(pack: Pack, signal?: AbortSignal): AsyncGenerator<Buffer> {
  yield* small("manifest", pack.manifestBytes);
  if (pack.signatures.length > 0) yield* small("signatures", encodeSignatures(pack.signatures));
  for (const { digest, size, path } of pack.blobs) {
    yield headerOf("blobs", { digest, size });
    for await (const piece of createReadStream(path, { highWaterMark: CHUNK, signal })) yield piece as Buffer;
    yield paddingOf(size);
  }
  yield endOfTar();
}

/** Size of the pack in bytes */
export function packSize(pack: Pack): number {
  const sizes = [pack.manifestBytes.length, ...pack.blobs.map(({ size }) => size)];
  if (pack.signatures.length > 0) sizes.push(encodeSignatures(pack.signatures).length);
  const padded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;
  const heads = [...pack.blobs].reduce((sum, { digest, size }) => sum + headerOf("blobs", { digest, size }).length, 0);
  return sizes.reduce((sum, size) => sum + padded(size), 0) + heads + BLOCK * (sizes.length - pack.blobs.length) + endOfTar().length;
}

/** Reads a pack from a stream; blobs are kept in a folder, one at a time */
export async function openPack(bytes: AsyncIterable<Uint8Array>, dir: string): Promise<PackSource & { close: () => Promise<void> }> {
  const input = new ByteSource(bytes, () => corrupt("it ends too early"));
  const reader = new PackReader(input, dir);
  try {
    return await reader.open();
  } catch (error) {
    await input.close();
    throw error;
  }
}

type Entry = { part: Part; digest: string; size: number };

class PackReader {
  readonly #input: ByteSource;
  readonly #dir: string;
  #manifest: PackManifest | undefined;
  #next: Entry | null = null;
  /** number of blobs of the manifest that were read */
  #at = 0;
  #spooled: string | undefined;

  constructor(input: ByteSource, dir: string) {
    this.#input = input;
    this.#dir = dir;
  }

  async open(): Promise<PackSource & { close: () => Promise<void> }> {
    this.#next = await this.#readHeader();
    const manifestBytes = await this.#small("manifest", MAX_MANIFEST_BYTES);
    this.#manifest = parsePackManifest(manifestBytes);
    const hasSignatures = this.#next?.part === "signatures";
    const signatures = hasSignatures ? parseSignatures(await this.#small("signatures", MAX_SIGNATURES_BYTES)) : [];
    return {
      manifestBytes,
      signatures,
      blob: async (digest, _size, signal) => this.#blob(digest, signal),
      done: async () => this.#done(),
      close: async () => this.#input.close(),
    };
  }

  /** The next requested blob; blobs before it are read and checked, and not kept */
  async #blob(digest: string, signal: AbortSignal): Promise<string> {
    if (this.#spooled) await rm(this.#spooled, { force: true });
    this.#spooled = undefined;
    while (this.#next && this.#next.digest !== digest) await this.#pass(signal);
    if (!this.#next)
      throw new ForkdError("PACK_INCOMPLETE", `Cannot use this pack: the blob ${digest} is not in it.`, {
        hint: "It was packed without what you should have: unpack what it builds on first, or ask for all of it.",
      });
    const path = join(this.#dir, `blob-${hexOf(digest)}`);
    try {
      await using file = await open(path, "wx", 0o600);
      await this.#pass(signal, async (piece) => file.writeFile(piece));
    } catch (error) {
      throw writeFailure(error);
    }
    this.#spooled = path;
    return path;
  }

  async #done(): Promise<void> {
    while (this.#next) await this.#pass();
    if (!(await this.#input.isAtEnd())) throw packInvalid("something follows its end");
  }

  /** Reads the content of a blob and the following header */
  async #pass(signal?: AbortSignal, write?: (piece: Buffer) => Promise<void>): Promise<void> {
    const { digest, size } = this.#nextBlob();
    const sum = new Summer();
    while (sum.size < size) {
      signal?.throwIfAborted();
      const piece = await this.#input.some(size - sum.size);
      sum.add(piece);
      await write?.(piece);
    }
    checkSum(sum.sum(), { digest, size }, "a blob is");
    await this.#skipPadding(size);
    this.#next = await this.#readHeader();
  }

  #nextBlob(): Entry {
    const entry = this.#next;
    const blobs = this.#manifest?.blobs ?? [];
    const at = blobs.findIndex((blob, index) => index >= this.#at && blob.digest === entry?.digest && blob.size === entry.size);
    if (entry?.part !== "blobs" || at < 0)
      throw packInvalid("an entry of it is not in its manifest, or not at this place, or of another size");
    this.#at = at + 1;
    return entry;
  }

  async #small(part: Part, limit: number): Promise<Buffer> {
    if (this.#next?.part !== part) throw packInvalid(`its first entry is not its manifest`);
    const { digest, size } = this.#next;
    if (size > limit) throw packInvalid(`its ${part} has ${size} bytes, more than ${limit}`);
    const data = Buffer.from(await this.#input.take(size));
    const sum = new Summer();
    sum.add(data);
    checkSum(sum.sum(), { digest, size }, `its ${part} is`);
    await this.#skipPadding(size);
    this.#next = await this.#readHeader();
    return data;
  }

  async #skipPadding(size: number): Promise<void> {
    const padding = paddingOf(size);
    if (padding.length > 0 && !(await this.#input.take(padding.length)).equals(padding))
      throw packInvalid("something is where nothing should be");
  }

  /** null: the end. Accepts exactly the header that forkd writes */
  async #readHeader(): Promise<Entry | null> {
    let block = await this.#input.take(BLOCK);
    if (block.equals(Buffer.alloc(BLOCK))) {
      if (!(await this.#input.take(BLOCK)).equals(Buffer.alloc(BLOCK))) throw packInvalid("its end is not one");
      return null;
    }
    // a size above 8 GiB needs an extension: the header then has three blocks
    if (block[156] === 0x78) block = Buffer.concat([block, await this.#input.take(2 * BLOCK)]);
    const main = block.subarray(block.length - BLOCK);
    const entry = entryOf(main, block);
    if (!entry || !headerOf(entry.part, entry).equals(block)) throw packInvalid(`an entry is not one of a pack: ${describe(main)}`);
    return entry;
  }
}

function* small(part: Part, data: Buffer): Generator<Buffer> {
  const sum = new Summer();
  sum.add(data);
  yield headerOf(part, sum.sum());
  yield data;
  yield paddingOf(data.length);
}

function headerOf(part: Part, { digest, size }: Sum): Buffer {
  return encodeHeader(rootHeader({ path: `${part}/sha256/${hexOf(digest)}`, type: "file", mode: 0o644, size }));
}

function entryOf(main: Buffer, header: Buffer): Entry | null {
  const name = cString(main.subarray(0, 100));
  const [, part, hex] = NAME.exec(name) ?? [];
  const octal = Number.parseInt(cString(main.subarray(124, 136)), 8);
  const extended = header.length > BLOCK ? Number(/ size=(\d{1,16})\n/.exec(header.toString("latin1", BLOCK, 2 * BLOCK))?.[1]) : octal;
  if (part === undefined || hex === undefined || !Number.isSafeInteger(extended)) return null;
  return { part: part as Part, digest: `sha256:${hex}`, size: extended };
}

/** Description of an unexpected entry, for messages */
function describe(main: Buffer): string {
  const kinds: Record<string, string> = {
    "1": "a hard link",
    "2": "a symbolic link",
    "3": "a device",
    "4": "a device",
    "5": "a folder",
    "6": "a pipe",
  };
  const kind = kinds[String.fromCharCode(main[156] ?? 0)] ?? "an entry";
  return `${kind} named ${JSON.stringify(cString(main.subarray(0, 100)).slice(0, 100))}`;
}

function cString(data: Buffer): string {
  const end = data.indexOf(0);
  return data.subarray(0, end < 0 ? data.length : end).toString("latin1");
}
