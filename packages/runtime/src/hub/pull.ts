// Opens a pack at any location for receiving.

import { createReadStream } from "node:fs";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { openPack } from "../pack/container.ts";
import { MANIFEST_MEDIA_TYPE, MAX_MANIFEST_BYTES, parsePackManifest } from "../pack/manifest.ts";
import type { PackSource } from "../pack/receive.ts";
import { MAX_SIGNATURES_BYTES } from "../pack/signature.ts";
import { countBytes, type Progress } from "../util/progress.ts";
import { BlobStore } from "./blob-store.ts";
import { HttpClient } from "./http-client.ts";
import type { HttpOpts } from "./http-client.ts";
import { openHttpPack, sizeOf, wholeOf } from "./http-pull.ts";
import type { IndexedPack } from "./index-file.ts";
import { digestOf } from "../util/digest.ts";
import { openRegistryPack } from "./oci-pull.ts";
import { remoteSource } from "./remote-source.ts";

const LIMITS = {
  configMediaType: MANIFEST_MEDIA_TYPE,
  maxManifestBytes: MAX_MANIFEST_BYTES,
  maxSignaturesBytes: MAX_SIGNATURES_BYTES,
};

export type PullOpts = HttpOpts & {
  /** for this pull only; removed with it */
  staging: string;
  signal: AbortSignal;
  progress?: Progress | undefined;
};

/** An open pack; closing cancels running downloads */
export type OpenPack = PackSource & { close: () => void | Promise<void> };

/** The expected digest and key of a pack */
export type Vouched = Pick<IndexedPack, "place" | "sha256" | "manifestSha256" | "key">;

export async function openRemotePack(home: Home, pack: Vouched, opts: PullOpts): Promise<OpenPack> {
  const store = new BlobStore(home, opts.staging);
  await store.prepare();
  const source = await open(store, pack, opts);
  try {
    checkVouched(source, pack);
    return source;
  } catch (error) {
    await source.close();
    throw error;
  }
}

async function open(store: BlobStore, { place, sha256, manifestSha256 }: Vouched, opts: PullOpts): Promise<OpenPack> {
  if (place.kind === "oci") return remoteSource(store, await openRegistryPack(place.reference, sha256, LIMITS, opts), opts);
  const client = new HttpClient(place.url, opts);
  // the digest of the file does not verify its parts, unless there is one for the manifest too
  if (sha256 !== undefined && manifestSha256 === undefined) return wholeFile(store, client, sha256, opts);
  const remote = await openHttpPack(client, LIMITS, (manifest) => parsePackManifest(manifest).blobs);
  return remote === undefined ? openPack(await streamOf(client, opts), opts.staging) : remoteSource(store, remote, opts);
}

async function wholeFile(store: BlobStore, client: HttpClient, sha256: string, opts: PullOpts): Promise<OpenPack> {
  const file = { digest: `sha256:${sha256}`, size: await sizeOf(client) };
  const onBytes = countBytes(opts.progress, "Downloading", file.size);
  const path = await store.get(wholeOf(client), file, { signal: opts.signal, onBytes });
  return openPack(createReadStream(path), opts.staging);
}

/** From a server without range support: as a stream */
async function streamOf(client: HttpClient, { progress }: PullOpts): Promise<AsyncIterable<Uint8Array>> {
  const response = await client.get();
  const length = Number(response.headers.get("content-length") ?? Number.NaN);
  return counted(response.body ?? [], (done) => {
    progress?.({ step: "Downloading", done, ...(length >= 0 && { total: length }), unit: "bytes" });
  });
}

async function* counted(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  onDone: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let done = 0;
  for await (const chunk of chunks) {
    done += chunk.length;
    onDone(done);
    yield chunk;
  }
}

/** Checks the key that the index states; the signature itself is verified with all others */
function checkVouched({ manifestBytes, signatures }: PackSource, { place, manifestSha256, key }: Vouched): void {
  if (manifestSha256 !== undefined && digestOf(manifestBytes) !== `sha256:${manifestSha256}`)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${place.shown}: its manifest is not the one that the index names.`);
  if (key !== undefined && !signatures.some(({ keyId }) => keyId === key)) {
    throw new ForkdError("PACK_UNTRUSTED", `Refused ${place.shown}: it is not signed by ${key.slice(0, 16)}, as the index says.`, {
      hint: "Do not use it, and report it to the maintainer of the index.",
    });
  }
}
