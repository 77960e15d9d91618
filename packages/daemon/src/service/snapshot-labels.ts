// Labels of a snapshot: fields that its owner sets and the daemon only stores.

import type { SnapshotRow } from "../store/tables.ts";
import { nowUnix } from "./core.ts";

export type Labels = Pick<SnapshotRow, "metadata" | "description">;

export const NO_LABELS: Labels = { metadata: {}, description: null };

/** Labels given in a request */
export function labelsOf(request: { readonly [K in keyof Labels]?: Labels[K] | undefined }): Partial<Labels> {
  const names = Object.keys(NO_LABELS) as (keyof Labels)[];
  return Object.fromEntries(names.filter((name) => request[name] !== undefined).map((name) => [name, request[name]]));
}

/** Visibility and expiry given in a request; null removes an expiry */
export function accessOf(request: {
  visibility?: SnapshotRow["visibility"] | undefined;
  expires_in_secs?: number | null | undefined;
}): Partial<Pick<SnapshotRow, "visibility" | "expires_at">> {
  const { visibility, expires_in_secs: secs } = request;
  return {
    ...(visibility === undefined ? {} : { visibility }),
    ...(secs === undefined ? {} : { expires_at: secs === null ? null : nowUnix() + secs }),
  };
}

/** All labels, for the view; a snapshot that the daemon did not create has no row */
export function labelsIn(row: SnapshotRow | undefined): Labels {
  return { ...NO_LABELS, ...labelsOf(row ?? {}) };
}
