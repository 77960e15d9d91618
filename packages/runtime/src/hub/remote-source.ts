// The blobs of a remote pack, fetched several at a time and ahead of the reader.

import type { PackSource } from "../pack/receive.ts";
import { parseSignatures } from "../pack/signature.ts";
import type { Progress } from "../util/progress.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { BlobStore } from "./blob-store.ts";
import type { RemotePack } from "./oci-pull.ts";

const PARALLEL_DOWNLOADS = 4;

type Blob = { digest: string; size: number };

/** `close` cancels running downloads */
export function remoteSource(
  store: BlobStore,
  remote: RemotePack,
  opts: { signal: AbortSignal; progress?: Progress | undefined },
): PackSource & { close: () => void } {
  const ended = new AbortController();
  const signal = AbortSignal.any([opts.signal, ended.signal]);
  const turns = new Semaphore(PARALLEL_DOWNLOADS);
  const paths = new Map<string, Promise<string>>();
  let done = 0;
  let total = 0;
  const onBytes = (bytes: number): void => {
    done += bytes;
    opts.progress?.({ step: "Downloading", done, total, unit: "bytes" });
  };
  const begin = (blob: Blob): Promise<string> => {
    const known = paths.get(blob.digest);
    if (known !== undefined) return known;
    const path = turns.run(async () => store.get(remote.source, blob, { signal, onBytes }));
    path.catch(() => ended.abort()); // the reader of the blob gets the error; the other downloads are cancelled
    paths.set(blob.digest, path);
    return path;
  };
  return {
    manifestBytes: remote.manifest,
    signatures: remote.signatures === undefined ? [] : parseSignatures(remote.signatures),
    want: (blobs) => {
      total = blobs.reduce((sum, { size }) => sum + size, 0);
      for (const blob of blobs) void begin(blob);
    },
    blob: async (digest, size) => begin({ digest, size }),
    close: () => ended.abort(),
  };
}
