// The blobs of a pack that is elsewhere, fetched several at a time and ahead of the one who unpacks them.

import type { PackSource } from "../pack/receive.ts";
import { parseSignatures } from "../pack/signature.ts";
import type { Progress } from "../util/progress.ts";
import { Semaphore } from "../util/semaphore.ts";
import type { BlobStore } from "./blob-store.ts";
import type { RemotePack } from "./oci-pull.ts";

const PARALLEL_DOWNLOADS = 4;

type Blob = { digest: string; size: number };

/** `close` ends what is still on its way */
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
    path.catch(() => ended.abort()); // who asks for it hears why; the others need not go on
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
