// Labels of a snapshot: fields that its owner sets and the daemon only stores.

import type { SnapshotRow } from "../store/tables.ts";

export type Labels = Pick<SnapshotRow, "metadata" | "description">;

export const NO_LABELS: Labels = { metadata: {}, description: null };

/** Labels given in a request */
export function labelsOf(request: { readonly [K in keyof Labels]?: Labels[K] | undefined }): Partial<Labels> {
  const names = Object.keys(NO_LABELS) as (keyof Labels)[];
  return Object.fromEntries(names.filter((name) => request[name] !== undefined).map((name) => [name, request[name]]));
}

/** All labels, for the view; a snapshot that the daemon did not create has no row */
export function labelsIn(row: SnapshotRow | undefined): Labels {
  return { ...NO_LABELS, ...labelsOf(row ?? {}) };
}
