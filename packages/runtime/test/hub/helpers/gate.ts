// An HTTP proxy before a registry that counts bytes and drops connections.

import { createServer, request } from "node:http";
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

/** `nth`: of the requests with this method, from 1 */
export type GateRequest = { method: string; url: string; nth: number; authorization: string | undefined };

export type GateOpts = {
  /** "at once": nothing reaches the registry; "half way": half of the body does */
  drop?: (request: GateRequest) => "at once" | "half way" | undefined;
  /** an answer in place of the registry's */
  answer?: (request: GateRequest) => { status: number; headers?: Record<string, string> } | undefined;
};

export type Gate = {
  host: string;
  /** bytes of bodies from the client */
  received: () => number;
  /** bytes of bodies to the client */
  sent: () => number;
  /** Content-Range of each part of an upload */
  ranges: () => string[];
  seen: GateRequest[];
};

export async function startGate(t: TestContext, upstream: string, opts: GateOpts = {}): Promise<Gate> {
  const seen: GateRequest[] = [];
  const ranges: string[] = [];
  const counts = { received: 0, sent: 0 };
  const server = createServer((req, res) => {
    const { method = "", url = "" } = req;
    const one = { method, url, nth: seen.filter((other) => other.method === method).length + 1, authorization: req.headers.authorization };
    seen.push(one);
    const range = req.headers["content-range"];
    if (range !== undefined) ranges.push(range);
    const answer = opts.answer?.(one);
    if (answer !== undefined) {
      req.resume().on("end", () => res.writeHead(answer.status, answer.headers).end());
      return;
    }
    const drop = opts.drop?.(one);
    if (drop === "at once") {
      req.socket.destroy();
      return;
    }
    // the registry names its own address in Location; the client must use the gate again
    const forwarded = request(`http://${upstream}${url}`, { method, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.on("data", (chunk: Buffer) => (counts.sent += chunk.length));
      answer.pipe(res);
    });
    forwarded.on("error", () => res.destroy());
    forwardBody(req, forwarded, drop === "half way" ? Number(req.headers["content-length"]) / 2 : Infinity, counts);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { host, received: () => counts.received, sent: () => counts.sent, ranges: () => ranges, seen };
}

function forwardBody(req: IncomingMessage, forwarded: ReturnType<typeof request>, limit: number, counts: { received: number }): void {
  let count = 0;
  req.on("data", (chunk: Buffer) => {
    counts.received += chunk.length;
    count += chunk.length;
    forwarded.write(chunk);
    if (count >= limit) {
      forwarded.destroy();
      req.socket.destroy();
    }
  });
  req.on("end", () => forwarded.end());
}
