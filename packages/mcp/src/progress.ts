// Progress of a call, for clients that asked for it.

import type { ServerContext } from "@modelcontextprotocol/server";

/** Shortest time between repeats of one message */
const PAUSE_MS = 500;

/** Some clients abort a call after a minute without progress, or less */
const HEARTBEAT_MS = 5000;

/** Reports every few seconds that a call is in progress, until it is disposed */
export function heartbeat(progress: (message: string) => void): Disposable {
  let beats = 0;
  const timer = setInterval(() => progress(`at work for ${(++beats * HEARTBEAT_MS) / 1000} s`), HEARTBEAT_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** The protocol requires an increasing number; the total is not known */
export function reporter(ctx: ServerContext, nowMs: () => number = () => performance.now()): (message: string) => void {
  const { _meta: asked } = ctx.mcpReq;
  const token = asked?.progressToken;
  if (token === undefined) return () => {};
  let count = 0;
  let last = { message: "", ms: -Infinity };
  return (message) => {
    const isNew = withoutNumbers(message) !== withoutNumbers(last.message);
    if (!isNew && nowMs() - last.ms < PAUSE_MS) return;
    last = { message, ms: nowMs() };
    count++;
    const params = { progressToken: token, progress: count, message };
    // a client that disconnected cancels the call itself
    ctx.mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  };
}

function withoutNumbers(message: string): string {
  return message.replaceAll(/\d+/g, "0");
}
