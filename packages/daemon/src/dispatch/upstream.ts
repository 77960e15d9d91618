// One request to a server behind this one (in a guest, or a node of a cluster), and the relay of its answer. Bodies are
// streamed in both directions.

import { type ClientRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { relay } from "../streams/relay.ts";
import type { Duplex } from "node:stream";
import type { Passage } from "./answer.ts";
import type { Takeover } from "./upgrade.ts";

export type Answered = { response: IncomingMessage; upgraded: { socket: Duplex; head: Buffer } | null };
export type Forwarded = { status: 101; body: Takeover } | { status: number; body: Passage };

type Waiting = {
  isUpgrade: boolean;
  /** for the head of the answer, from the end of the request; 0: no limit */
  headMs: number;
  late: () => Error;
};

type Relaying = {
  requestId: string;
  /** ends streams and upgraded connections cleanly */
  stopping: AbortSignal;
};

/** Sends the body of the client's request */
export function sendBody(request: IncomingMessage, outgoing: ClientRequest, isUpgrade: boolean): void {
  if (isUpgrade || !hasBody(request)) outgoing.end();
  else request.pipe(outgoing);
}

export function answered(outgoing: ClientRequest, { isUpgrade, headMs, late }: Waiting): Promise<Answered> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    let limitMs = headMs;
    const settle = (then: () => void): void => {
      clearTimeout(timer);
      limitMs = 0;
      then();
    };
    // starts at the end of the request: an upload has no time limit
    outgoing.once("finish", () => (timer = limitMs > 0 ? setTimeout(() => void outgoing.destroy(late()), limitMs) : undefined));
    outgoing.once("response", (response) => settle(() => resolve({ response, upgraded: null })));
    if (isUpgrade)
      outgoing.once("upgrade", (response, socket: Duplex, head) => settle(() => resolve({ response, upgraded: { socket, head } })));
    // not once(): later errors belong to the body and are reported there, but still need a listener
    outgoing.on("error", (error) => settle(() => reject(error)));
    // an unrequested upgrade closes the connection without another event
    outgoing.once("close", () => settle(() => reject(Object.assign(new Error("no answer"), { code: "ECONNRESET" }))));
  });
}

/** @param headers of the answer for the client, in `rawHeaders` form */
export function forwardedOf({ response, upgraded }: Answered, headers: string[], relaying: Relaying): Forwarded {
  if (upgraded) return { status: 101, body: takeoverOf(upgraded, upgradeHead(response, headers, relaying.requestId), relaying) };
  return { status: response.statusCode ?? 502, body: passageOf(response, headers, relaying) };
}

export function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}

/** Whether the server closed the connection before it answered */
export function isClosed(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ECONNRESET" || code === "EPIPE" || (error instanceof ForkdError && "errno" in error);
}

function passageOf(response: IncomingMessage, headers: string[], { stopping }: Relaying): Passage {
  return async (to) => {
    try {
      const own = Object.entries(to.getHeaders()).flatMap(([name, value]) => [name, String(value)]);
      to.writeHead(response.statusCode ?? 502, [...headers, ...own]);
    } catch (error) {
      response.destroy();
      throw new ForkdError("BAD_GATEWAY", `Cannot forward the server's answer: ${messageOf(error)}.`, { cause: error });
    }
    // event streams do not end by themselves: end them when the daemon stops; the client reconnects
    const isEndless = response.headers["content-type"]?.startsWith("text/event-stream") === true;
    const end = (): void => {
      to.end();
      response.destroy();
    };
    if (isEndless) stopping.addEventListener("abort", end);
    await pipe(response, to);
    stopping.removeEventListener("abort", end);
  };
}

/** Resolves when the response is sent or broken off. Small responses need one write; a slow one's head is sent early */
function pipe(response: IncomingMessage, to: ServerResponse): Promise<void> {
  // without Content-Length, only the connection state shows whether the body is complete
  const { socket } = response;
  return new Promise((resolve) => {
    let hasBegun = false;
    const breakOff = (): void => {
      response.destroy();
      if (to.socket && !to.destroyed) {
        // flush the partial body first: the client must see a truncated response, not a missing one
        to.flushHeaders();
        to.socket.destroySoon();
      } else to.destroy();
      resolve();
    };
    // a side that ended before the listeners were added emits no event
    if (to.destroyed || (response.destroyed && !response.complete)) {
      breakOff();
      return;
    }
    response.on("data", (piece: Buffer) => {
      hasBegun = true;
      if (!to.write(piece)) response.pause();
    });
    to.on("drain", () => response.resume());
    response.once("end", () => {
      if (socket.errored) {
        breakOff();
        return;
      }
      if (response.rawTrailers.length > 0 && to.hasHeader("trailer")) to.addTrailers(response.trailers);
      to.end();
    });
    response.once("error", breakOff);
    response.once("close", () => {
      if (!response.complete && !to.writableEnded) breakOff();
    });
    to.once("close", () => {
      // after a complete response the connection is kept alive
      if (!response.complete) response.destroy();
      resolve();
    });
    setImmediate(() => {
      if (!hasBegun && !to.writableEnded) to.flushHeaders();
    });
  });
}

function takeoverOf(upgraded: { socket: Duplex; head: Buffer }, head: string, { stopping }: Relaying): Takeover {
  return async (client, cut) => {
    client.socket.write(head, "latin1");
    if (upgraded.head.length > 0) client.socket.write(upgraded.head);
    if (client.head.length > 0) upgraded.socket.write(client.head);
    await relay(client.socket, upgraded.socket, { cut, stopping });
  };
}

function upgradeHead(response: IncomingMessage, headers: readonly string[], requestId: string): string {
  const all = [...headers, "Connection", "Upgrade", "Upgrade", response.headers.upgrade ?? "", "X-Request-Id", requestId];
  const lines = all.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${all[at + 1]}\r\n`] : []));
  return `HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`;
}
