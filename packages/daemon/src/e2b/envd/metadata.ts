// File metadata: sent in headers, stored in extended attributes.

import { ForkdError } from "@forkd/runtime/errors";
import type { SandboxWork } from "../work.ts";

const PREFIX = "user.e2b.";
const HEADER = "x-metadata-";
const PRINTABLE = /^[\x20-\x7e]*$/;
/** Kernel limit of an attribute name, prefix included */
const MAX_NAME = 255;
/** E2B's limit of a value, which every file system supports */
const MAX_BYTES = 4096;

export type Metadata = Record<string, string>;

/** Uses the first of repeated headers. Throws BAD_REQUEST */
export function metadataIn(headers: NodeJS.Dict<string[]>): Metadata {
  const pairs = Object.entries(headers).flatMap(([name, values]): [string, string][] => {
    const value = values?.[0];
    return name.startsWith(HEADER) && name !== HEADER && value !== undefined ? [[name.slice(HEADER.length), value]] : [];
  });
  let bytes = 0;
  for (const [key, value] of pairs) {
    if (!PRINTABLE.test(value)) throw refused(`the value of ${key} must be printable US-ASCII`);
    if (PREFIX.length + key.length > MAX_NAME) throw refused(`a key has at most ${MAX_NAME - PREFIX.length} bytes`);
    bytes += PREFIX.length + key.length + value.length;
  }
  if (bytes > MAX_BYTES) throw refused(`it has ${bytes} bytes in all, and ${MAX_BYTES} are the most`);
  return Object.fromEntries(pairs);
}

export async function metadataOf({ sandbox, services, caller }: SandboxWork, paths: string[]): Promise<Metadata[]> {
  return services.manager.files.attributes(sandbox.id, { paths, prefix: PREFIX }, caller);
}

/** Replaces the stored metadata */
export async function note({ sandbox, services, caller }: SandboxWork, path: string, metadata: Metadata): Promise<void> {
  await services.manager.files.setAttributes(sandbox.id, { path, prefix: PREFIX, attributes: metadata }, caller);
}

function refused(why: string): ForkdError {
  return new ForkdError("BAD_REQUEST", `Cannot take the metadata: ${why}.`);
}
