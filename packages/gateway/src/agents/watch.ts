// A watch: changes of one resource as lines of JSON, until the client goes or its time is over.

import { versioned } from "./journal.ts";
import type { ServerResponse } from "node:http";
import type { Change, Journal } from "./journal.ts";
import type { KubernetesObject } from "./objects.ts";
import type { Resource } from "./resources.ts";
import type { Matches } from "./selectors.ts";

const BOOKMARK_MS = 30_000;
/** Bytes that a client has not read, after which it is dropped: it lists again */
const MAX_UNREAD = 8 * 1024 * 1024;
const INITIAL_END = "k8s.io/initial-events-end";

export type Watch = {
  resource: Resource;
  matches: Matches;
  /** sent first, as if they were made now */
  initial: readonly KubernetesObject[];
  /** changes that came before the watch and that the client does not know */
  missed: readonly Change[];
  wantsBookmarks: boolean;
  /** the client counts on a bookmark after the initial objects */
  marksInitial: boolean;
  /** the form of an object that the client wants */
  shape: (object: KubernetesObject, isFirst: boolean) => object;
  timeoutMs: number;
  /** kind and version of bookmarks */
  empty: { apiVersion: string; kind: string };
  signal: AbortSignal;
};

/** Begins the answer; it ends by itself. `initial` and `missed` must be of this moment, without a wait in between */
export function startWatch(journal: Journal, response: ServerResponse, watch: Watch): void {
  const { resource, matches, shape } = watch;
  let isFirst = true;
  const send = (type: string, object: object): void => {
    if (response.writableLength > MAX_UNREAD) response.destroy();
    else response.write(`${JSON.stringify({ type, object })}\n`);
  };
  const sendObject = (type: string, object: KubernetesObject): void => {
    send(type, shape(object, isFirst));
    isFirst = false;
  };
  const bookmark = (annotations?: Record<string, string>): void => {
    const metadata = { resourceVersion: String(journal.tick()), ...(annotations ? { annotations } : {}) };
    send("BOOKMARK", { ...watch.empty, metadata });
  };
  const onChange = (change: Change): void => {
    const type = typeFor(change, resource, matches);
    if (type !== null) sendObject(type, versioned(change));
  };
  response.writeHead(200, { "content-type": "application/json", "cache-control": "no-cache, private" });
  response.flushHeaders();
  for (const object of watch.initial) if (matches(object)) sendObject("ADDED", object);
  if (watch.marksInitial) bookmark({ [INITIAL_END]: "true" });
  for (const change of watch.missed) onChange(change);
  const unsubscribe = journal.subscribe(onChange);
  const marks = watch.wantsBookmarks ? setInterval(() => bookmark(), BOOKMARK_MS) : undefined;
  const end = (): void => void response.end();
  const timer = setTimeout(end, watch.timeoutMs);
  watch.signal.addEventListener("abort", end, { once: true });
  response.once("close", () => {
    unsubscribe();
    clearInterval(marks);
    clearTimeout(timer);
    watch.signal.removeEventListener("abort", end);
  });
}

/** An object that begins to match is new for the watch, and one that does no longer is gone. null: it never matched */
export function typeFor(change: Change, resource: Resource, matches: Matches): Change["type"] | null {
  const { type, object, previous } = change;
  if (change.resource !== resource) return null;
  const isMatch = matches(object);
  if (type !== "MODIFIED") return isMatch ? type : null;
  if (!previous) return isMatch ? "MODIFIED" : "DELETED";
  const wasMatch = matches(previous);
  if (isMatch) return wasMatch ? "MODIFIED" : "ADDED";
  return wasMatch ? "DELETED" : null;
}
