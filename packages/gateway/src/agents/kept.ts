// What Kubernetes' clients gave a sandbox, kept in the sandbox's own metadata: no object of Kubernetes is stored for it.

import { invalid } from "./refusal.ts";

/** Keys of the metadata that belong to this API */
const PREFIX = "k8s.";
/** Limits of metadata */
const MAX_VALUE = 1024;
const MAX_PARTS = 60;

/** `claim`: the claim that made it, whose object has these values */
export type Kept = {
  labels: Record<string, string>;
  annotations: Record<string, string>;
  spec: Record<string, unknown>;
  claim?: { name: string; labels: Record<string, string>; annotations: Record<string, string>; spec: Record<string, unknown> };
};

type Metadata = Record<string, string>;

/** Metadata with this in it; entries of others stay */
export function withKept(metadata: Metadata, kept: Kept): Metadata {
  // ASCII: a part must not end within a character
  const text = JSON.stringify(kept).replaceAll(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const parts: Metadata = {};
  for (let at = 0; at * MAX_VALUE < text.length; at++) parts[`${PREFIX}${at}`] = text.slice(at * MAX_VALUE, (at + 1) * MAX_VALUE);
  if (Object.keys(parts).length > MAX_PARTS)
    throw invalid("The object", [{ field: "metadata, spec", message: `are larger than ${(MAX_PARTS * MAX_VALUE) / 1024} KiB together` }]);
  return { ...othersIn(metadata), ...parts };
}

/** null: the sandbox was not made through Kubernetes, or its metadata was replaced */
export function keptIn(metadata: Metadata): Kept | null {
  let text = "";
  for (let at = 0; metadata[`${PREFIX}${at}`] !== undefined; at++) text += metadata[`${PREFIX}${at}`];
  if (text === "") return null;
  try {
    return JSON.parse(text) as Kept;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

function othersIn(metadata: Metadata): Metadata {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => !key.startsWith(PREFIX)));
}
