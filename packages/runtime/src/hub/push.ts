// Sends a prepared pack to its location.

import { createHash } from "node:crypto";
import { countBytes } from "../util/progress.ts";
import { hexOf } from "../util/digest.ts";
import { ForkdError } from "../errors.ts";
import { packBytes, packSize } from "../pack/container.ts";
import type { ImageReference } from "../oci/reference.ts";
import { MANIFEST_MEDIA_TYPE } from "../pack/manifest.ts";
import type { Pack } from "../pack/prepare.ts";
import { encodeSignatures } from "../pack/signature.ts";
import { HttpClient } from "./http-client.ts";
import { fileBlob } from "./local-blob.ts";
import { pushToRegistry } from "./oci-push.ts";
import type { Parcel, PushOpts } from "./oci-push.ts";
import { parsePlace } from "./place.ts";

/** `sha256`: of the file, or of the registry's manifest; `digest`: the latter alone */
export type Sent = { digest: string | null; sha256: string; bytes: number; sentBytes: number };

/** Opens a location for a push; its errors are reported before anything is compressed */
export function openPush(text: string, opts: PushOpts): { shown: string; send: (pack: Pack) => Promise<Sent> } {
  const to = parsePlace(text);
  if (to.kind === "alias")
    throw new ForkdError("BAD_REQUEST", `Cannot push to ${to.shown}: a hub is an index of packs that are elsewhere.`, {
      hint: "Push to oci:// or https://, and name that in the index.",
    });
  if (to.kind === "oci") return { shown: to.shown, send: async (pack) => sendToRegistry(pack, to.reference, opts) };
  const client = new HttpClient(to.url, opts);
  return { shown: to.shown, send: async (pack) => putFile(pack, client, opts) };
}

async function sendToRegistry(pack: Pack, to: ImageReference, opts: PushOpts): Promise<Sent> {
  const { digest, bytes, sentBytes } = await pushToRegistry(to, parcelOf(pack), opts);
  return { digest, sha256: hexOf(digest), bytes, sentBytes };
}

async function putFile(pack: Pack, client: HttpClient, opts: PushOpts): Promise<Sent> {
  const bytes = packSize(pack);
  let hash = createHash("sha256");
  async function* open(): AsyncGenerator<Uint8Array> {
    hash = createHash("sha256");
    const onBytes = countBytes(opts.progress, "Uploading", bytes);
    for await (const chunk of packBytes(pack, opts.signal)) {
      hash.update(chunk);
      yield chunk;
      onBytes(chunk.length);
    }
  }
  await client.put({ bytes, open });
  return { digest: null, sha256: hash.digest("hex"), bytes, sentBytes: bytes };
}

function parcelOf({ manifest, manifestBytes, signatures, blobs }: Pack): Parcel {
  const mediaTypes = new Map(manifest.blobs.map(({ digest, mediaType }) => [digest, mediaType]));
  return {
    manifest: { mediaType: MANIFEST_MEDIA_TYPE, data: manifestBytes },
    signatures: signatures.length === 0 ? undefined : encodeSignatures(signatures),
    blobs: blobs.map((blob) => ({ ...fileBlob(blob.path, blob), mediaType: mediaTypes.get(blob.digest) ?? "application/octet-stream" })),
  };
}
