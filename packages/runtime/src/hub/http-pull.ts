// Opens a pack on a web server: reads its head, and fetches single blobs by range requests on demand.

import { ForkdError } from "../errors.ts";
import type { BlobSource } from "../oci/blob-download.ts";
import type { Descriptor } from "../oci/schema.ts";
import { readBounded } from "../oci/registry-client.ts";
import type { HttpClient } from "./http-client.ts";
import { digestOf } from "../util/digest.ts";
import type { Limits, RemotePack } from "./oci-pull.ts";

const BLOCK = 512;
/** Size of the end of the archive, after the last blob */
const END_BYTES = 2 * BLOCK;
/** A larger size needs two more header blocks */
const MAX_SIMPLE_SIZE = 8 * 1024 ** 3 - 1;
/** Enough for the manifest of most packs */
const HEAD_BYTES = 64 * 1024;

type Member = { size: number; data: Buffer };

/** Undefined when the server does not support ranges, or when blobs were left out and the positions of the others are unknown */
export async function openHttpPack(
  client: HttpClient,
  limits: Limits,
  blobsOf: (manifest: Buffer) => readonly Descriptor[],
): Promise<RemotePack | undefined> {
  const head = new Head(client);
  if (!(await head.begin())) return undefined;
  const manifest = await head.member("manifest", 0, limits.maxManifestBytes);
  if (manifest === undefined) throw head.noPack();
  const blobs = blobsOf(manifest.data);
  let offset = BLOCK + padded(manifest.size);
  const signatures = await head.member("signatures", offset, limits.maxSignaturesBytes);
  if (signatures !== undefined) offset += BLOCK + padded(signatures.size);
  const offsets = new Map<string, number>();
  for (const { digest, size } of blobs) {
    offset += size > MAX_SIMPLE_SIZE ? 3 * BLOCK : BLOCK;
    offsets.set(digest, offset);
    offset += padded(size);
  }
  if (head.total !== offset + END_BYTES) return undefined;
  return { manifest: manifest.data, signatures: signatures?.data, source: partsOf(client, offsets) };
}

/** The complete file, as one blob */
export function wholeOf(client: HttpClient): BlobSource {
  return partsOf(client, undefined);
}

/** Its size, without reading it */
export async function sizeOf(client: HttpClient): Promise<number> {
  const response = await client.get(0, 1);
  await response.body?.cancel();
  const total = response.status === 206 ? totalOf(response) : Number(response.headers.get("content-length") ?? Number.NaN);
  if (!Number.isSafeInteger(total)) throw client.failure(`The server of ${client.shown} does not report its size.`);
  return total;
}

/** @param offsets of blobs in the file; without them it is a single blob */
function partsOf(client: HttpClient, offsets: ReadonlyMap<string, number> | undefined): BlobSource {
  return {
    open: async ({ digest, size }, offset) => {
      const first = offsets === undefined ? 0 : offsets.get(digest);
      if (first === undefined) throw new ForkdError("PACK_INVALID", `The pack at ${client.shown} has no blob ${digest}.`);
      const start = first + offset;
      if (start === 0 && offsets === undefined) {
        const response = await client.get();
        return { response, at: response.ok ? 0 : undefined };
      }
      const response = await client.get(start, first + size);
      return { response, at: startsAt(response, start) ? offset : undefined };
    },
    pause: async (attempt) => client.pause(attempt),
    failure: (message, cause) => client.failure(message, cause),
  };
}

/** The first bytes, as far as they were needed */
class Head {
  readonly #client: HttpClient;
  #data: Buffer = Buffer.alloc(0);
  /** size of the file */
  total = Number.NaN;

  constructor(client: HttpClient) {
    this.#client = client;
  }

  /** False when the server does not support ranges */
  async begin(): Promise<boolean> {
    const response = await this.#client.get(0, HEAD_BYTES);
    if (startsAt(response, 0)) {
      this.total = totalOf(response);
      this.#data = await readBounded(response, HEAD_BYTES);
      return true;
    }
    await response.body?.cancel();
    if (response.status === 416) throw this.noPack();
    return false;
  }

  /** A small file of the archive, if it is at `offset` */
  async member(kind: "manifest" | "signatures", offset: number, limit: number): Promise<Member | undefined> {
    await this.#need(offset + BLOCK);
    const header = this.#data.subarray(offset, offset + BLOCK);
    const [, hex] = new RegExp(`^${kind}/sha256/([0-9a-f]{64})$`).exec(text(header, 0, 100)) ?? [];
    if (hex === undefined) return undefined;
    const size = Number.parseInt(text(header, 124, 12), 8);
    if (!(size >= 0)) throw this.noPack();
    if (size > limit)
      throw new ForkdError("PACK_INVALID", `Refused ${this.#client.shown}: its ${kind} has ${size} bytes, more than ${limit}.`);
    await this.#need(offset + BLOCK + size);
    const data = this.#data.subarray(offset + BLOCK, offset + BLOCK + size);
    if (digestOf(data) !== `sha256:${hex}`)
      throw new ForkdError("DIGEST_MISMATCH", `Refused ${this.#client.shown}: its ${kind} has another digest than its name.`);
    return { size, data };
  }

  noPack(): ForkdError {
    return new ForkdError("PACK_INVALID", `The file at ${this.#client.shown} is not a forkd pack.`);
  }

  async #need(end: number): Promise<void> {
    const start = this.#data.length;
    if (start >= end) return;
    const to = Math.max(end, start + HEAD_BYTES);
    const response = await this.#client.get(start, to);
    if (!startsAt(response, start)) {
      await response.body?.cancel();
      throw this.noPack();
    }
    this.#data = Buffer.concat([this.#data, await readBounded(response, to - start)]);
    if (this.#data.length < end) throw this.noPack();
  }
}

/** NaN when the server does not send it */
function totalOf(response: Response): number {
  const [, total] = /\/(\d{1,15})$/.exec(response.headers.get("content-range") ?? "") ?? [];
  return Number(total ?? Number.NaN);
}

function startsAt(response: Response, start: number): boolean {
  return response.status === 206 && (response.headers.get("content-range") ?? "").startsWith(`bytes ${start}-`);
}

function text(header: Buffer, at: number, length: number): string {
  const field = header.subarray(at, at + length);
  const end = field.indexOf(0);
  return field.subarray(0, end < 0 ? length : end).toString("latin1");
}

function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}
