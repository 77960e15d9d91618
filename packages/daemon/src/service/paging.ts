// Pagination of lists that are sorted by a key.

import { ForkdError } from "@forkd/runtime/errors";

export type Page<T> = { items: T[]; nextCursor: string | null };

/** @param keyOf unique and in list order: entries added or removed between two pages shift no other entry */
export function pageOf<T>(
  items: readonly T[],
  keyOf: (item: T) => string,
  query: { limit?: number | undefined; cursor?: string | undefined },
): Page<T> {
  const after = query.cursor === undefined ? undefined : decode(query.cursor);
  const rest = after === undefined ? [...items] : items.filter((item) => keyOf(item) > after);
  if (query.limit === undefined || rest.length <= query.limit) return { items: rest, nextCursor: null };
  const page = rest.slice(0, query.limit);
  const last = page.at(-1);
  return { items: page, nextCursor: last === undefined ? null : Buffer.from(keyOf(last)).toString("base64url") };
}

function decode(cursor: string): string {
  const key = Buffer.from(cursor, "base64url").toString();
  if (Buffer.from(key).toString("base64url") !== cursor) throw new ForkdError("BAD_REQUEST", "cursor is not one that a page gave.");
  return key;
}

/** Whether the metadata contains all key=value pairs of a filter */
export function hasMetadata(metadata: Record<string, string>, pairs: readonly string[] | undefined): boolean {
  return (pairs ?? []).every((pair) => {
    const at = pair.indexOf("=");
    return metadata[pair.slice(0, at)] === pair.slice(at + 1);
  });
}
