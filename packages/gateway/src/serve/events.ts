// Events of all nodes in one stream. Its position is that of every node, so that a client continues where it was, through
// any gateway: CODE:ID,CODE:ID,…

import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { readEvents } from "../nodes/sse.ts";
import { askerOf, type Asked } from "./cluster.ts";
import type { Node } from "../nodes/node.ts";

const CURSOR = /^[a-z2-7]{4}:\d{1,15}(?:,[a-z2-7]{4}:\d{1,15}){0,9999}$/;
const RETRY_MS = 1000;
/** How long the first answer waits for the positions of the nodes */
const POSITIONS_WITHIN_MS = 2000;
const MAX_UNREAD = 4;

export function openEvents({ exchange, cluster, search }: Asked): Readable {
  const query = new URLSearchParams(search);
  const given = exchange.request.headers["last-event-id"] ?? query.get("since") ?? undefined;
  const positions = positionsOf(typeof given === "string" ? given : undefined);
  query.delete("since");
  const path = `/v1/events?${query.toString()}`;
  const over = AbortSignal.any([exchange.signal, cluster.stopping]);
  const closed = new AbortController();
  const signal = AbortSignal.any([over, closed.signal]);
  let drained = Promise.withResolvers<void>();
  let unread = 0;
  let isBegun = false;
  const stream = new Readable({
    read: () => drained.resolve(),
    destroy(error, done) {
      closed.abort();
      forget();
      clearInterval(heartbeat);
      drained.resolve();
      done(error);
    },
  });
  const cursor = (): string => [...positions].map(([code, id]) => `${code}:${id}`).join(",");
  const push = async (text: string): Promise<void> => {
    if (stream.destroyed || over.aborted) return;
    drained = Promise.withResolvers();
    // a slow client slows the reading of all nodes, whose journals keep the rest
    if (!stream.push(text)) await drained.promise;
  };
  const begun = Promise.withResolvers<void>();
  const begin = (): void => {
    if (isBegun) return;
    isBegun = true;
    stream.push(`retry: ${RETRY_MS}\nid: ${cursor()}\n\n`);
    begun.resolve();
  };
  const waiting = new Set(cluster.nodes.up);
  const follow = async (node: Node): Promise<void> => {
    while (!signal.aborted && !node.closed.aborted) {
      const { code } = node;
      if (node.isUp && code !== null) {
        try {
          const lastEventId = positions.get(code)?.toString() ?? (given === "0" ? "0" : undefined);
          await readEvents(node, { path, as: askerOf(exchange), lastEventId, signal }, async ({ id, event, data }) => {
            positions.set(code, Number(id));
            if (waiting.delete(node) && waiting.size === 0) begin();
            if (data === "") return;
            await begun.promise;
            await push(`id: ${cursor()}\nevent: ${event}\ndata: ${data}\n\n`);
          });
        } catch (error) {
          if (error instanceof ForkdError) {
            stream.destroy(error);
            return;
          }
          if (!signal.aborted) cluster.log.debug({ node: node.label, problem: messageOf(error) }, "events of a node ended");
        }
      }
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  };
  const heartbeat = setInterval(() => {
    unread = stream.readableLength > 0 ? unread + 1 : 0;
    if (unread > MAX_UNREAD) stream.destroy(new Error("the client does not read its events"));
    else if (unread === 0 && !over.aborted) stream.push(": still here\n\n");
  }, cluster.limits.heartbeatMs);
  over.addEventListener("abort", () => void stream.push(null), { once: true });
  const late = setTimeout(begin, POSITIONS_WITHIN_MS).unref();
  void begun.promise.then(() => clearTimeout(late));
  for (const node of cluster.nodes.all) void follow(node);
  const forget = cluster.nodes.observe((node) => void follow(node));
  if (waiting.size === 0) begin();
  return stream;
}

function positionsOf(cursor: string | undefined): Map<string, number> {
  if (cursor === undefined || cursor === "" || cursor === "0") return new Map();
  if (!CURSOR.test(cursor))
    throw new ForkdError("BAD_REQUEST", "Cannot accept the request: since: must be the id of an event of this cluster, or 0.");
  return new Map(cursor.split(",").map((part) => [part.slice(0, 4), Number(part.slice(5))]));
}
