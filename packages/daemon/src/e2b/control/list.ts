// E2B control API: sandbox lists with filters, order and pages.

import { ForkdError } from "@forkd/runtime/errors";
import { listed } from "./view.ts";
import type { SandboxInfo, SandboxState } from "../../api/sandbox.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { ControlWork } from "../work.ts";

const MAX_LIMIT = 100;
/** E2B's state `paused` covers both: memory kept in RAM, or saved to disk */
const STATES: Record<string, SandboxState[]> = { running: ["running"], paused: ["paused", "suspended"] };

export function listSandboxes({ call: { query, path }, services, caller }: ControlWork): Answer {
  const all = services.manager.sandboxes.list({ state: statesOf(query), metadata: metadataOf(query.get("metadata")) }, caller).items;
  const after = query.get("startedAfter");
  const template = query.get("template");
  const wanted = all
    .filter(({ created_at_unix_ms: at }) => after === null || at >= timeOf(after))
    .filter(({ snapshot_tag: tag }) => template === null || tag === template);
  const isAscending = query.get("order") === "asc";
  const sorted = wanted.toSorted((a, b) => (keyOf(a) < keyOf(b) === isAscending ? -1 : 1));
  // the v1 path is not paginated
  const isPaged = path.startsWith("/v2/");
  const { items, nextToken } = pageOf(sorted, keyOf, isPaged ? query : new URLSearchParams({ limit: "0" }), isAscending);
  return { status: 200, body: items.map(listed), headers: nextToken === null ? {} : { "x-next-token": nextToken } };
}

/** One page of a sorted list, and the token of the next page. Limit 0: all items */
export function pageOf<T>(
  sorted: T[],
  key: (item: T) => string,
  query: URLSearchParams,
  isAscending: boolean,
): { items: T[]; nextToken: string | null } {
  const limit = limitOf(query.get("limit"));
  const token = query.get("nextToken");
  const last = token === null || token === "" ? null : Buffer.from(token, "base64url").toString();
  const rest = last === null ? sorted : sorted.filter((item) => (isAscending ? key(item) > last : key(item) < last));
  const items = limit === 0 ? rest : rest.slice(0, limit);
  const end = items.at(-1);
  return { items, nextToken: items.length < rest.length && end ? Buffer.from(key(end)).toString("base64url") : null };
}

/**
 * Metadata filter as the SDKs send it: keys and values percent-encoded, then the whole again, then as a query value.
 * Returns `key=value` pairs.
 */
export function metadataOf(text: string | null): string[] | undefined {
  if (text === null || text === "") return undefined;
  return unescaped(text)
    .split("&")
    .filter(Boolean)
    .map((pair) => {
      const at = pair.indexOf("=");
      return at < 0 ? `${unescaped(pair)}=` : `${unescaped(pair.slice(0, at))}=${unescaped(pair.slice(at + 1))}`;
    });
}

function statesOf(query: URLSearchParams): SandboxState[] {
  const given = query.getAll("state").flatMap((text) => text.split(",").filter(Boolean));
  return (given.length === 0 ? Object.keys(STATES) : given).flatMap((name) => {
    const states = Object.hasOwn(STATES, name) ? STATES[name] : undefined;
    if (!states) throw new ForkdError("BAD_REQUEST", "Cannot list sandboxes: state: must be running or paused.");
    return states;
  });
}

function limitOf(text: string | null): number {
  const limit = text === null ? MAX_LIMIT : Number(text);
  if (!Number.isInteger(limit) || limit < 0) throw new ForkdError("BAD_REQUEST", "Cannot list: limit: must be a number.");
  return Math.min(limit, MAX_LIMIT);
}

function timeOf(text: string): number {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) throw new ForkdError("BAD_REQUEST", "Cannot list sandboxes: startedAfter: must be a time.");
  return ms;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch (error) {
    if (error instanceof URIError) return text;
    throw error;
  }
}

function keyOf({ created_at_unix_ms: at, id }: SandboxInfo): string {
  return `${String(at).padStart(15, "0")}__${id}`;
}
