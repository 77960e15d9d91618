// Server-sent events of one node.

import { once } from "node:events";
import { createInterface } from "node:readline";
import { ForkdError } from "@forkd/runtime/errors";
import type { IncomingMessage } from "node:http";
import type { Node } from "./node.ts";
import type { Asker } from "./signer.ts";

/** Without a heartbeat for so long, the node is gone */
const SILENCE_MS = 60_000;

export type NodeEvent = { id: string; event: string; data: string };

type Following = {
  path: string;
  as: Asker;
  lastEventId?: string | undefined;
  signal: AbortSignal;
  onOpen?: () => void;
};

/** Resolves when the stream ends. The reader's promise is awaited, so that a slow one slows the node */
export async function readEvents(node: Node, opts: Following, onEvent: (event: NodeEvent) => void | Promise<void>): Promise<void> {
  const { path, as, lastEventId, signal } = opts;
  const headers = ["Accept", "text/event-stream", ...(lastEventId === undefined ? [] : ["Last-Event-ID", lastEventId])];
  const outgoing = node.open({ method: "GET", path, headers, signal }, as);
  outgoing.end();
  const [response] = (await once(outgoing, "response")) as [IncomingMessage];
  if (response.statusCode !== 200) {
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    throw refusalOf(response.statusCode ?? 502, Buffer.concat(pieces).toString());
  }
  outgoing.setTimeout(SILENCE_MS, () => outgoing.destroy(new Error("its events stopped")));
  opts.onOpen?.();
  let next: NodeEvent = { id: "", event: "message", data: "" };
  for await (const line of createInterface({ input: response, crlfDelay: Infinity })) {
    if (line === "") {
      if (next.data !== "" || next.id !== "") await onEvent(next);
      next = { id: "", event: "message", data: "" };
    } else if (line.startsWith("id: ")) next.id = line.slice(4);
    else if (line.startsWith("event: ")) next.event = line.slice(7);
    else if (line.startsWith("data: ")) next.data += line.slice(6);
  }
}

function refusalOf(status: number, text: string): Error {
  if (status !== 400) return new Error(`it answers ${status}`);
  const { error = "Cannot read events." } = JSON.parse(text) as { error?: string };
  return new ForkdError("BAD_REQUEST", error);
}
