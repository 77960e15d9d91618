// An HTTP server before a registry: drops connections, requires tokens, redirects, or sends wrong answers.

import { createServer, request } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export type Seen = { url: string; range: string | undefined; authorization: string | undefined };

/** Answers itself and returns true, or forwards the request to the registry */
export type Handler = (seen: Seen, res: ServerResponse, req: IncomingMessage) => boolean;

export async function startFront(
  t: TestContext,
  upstream: string | undefined,
  handler: Handler,
  opts: { dropAfter?: (seen: Seen) => number | undefined } = {},
): Promise<{ host: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer((req, res) => {
    const one = { url: req.url ?? "", range: req.headers.range, authorization: req.headers.authorization };
    seen.push(one);
    if (handler(one, res, req)) return;
    if (upstream === undefined) {
      res.writeHead(404).end();
      return;
    }
    const { authorization: _dropped, ...headers } = req.headers;
    const forwarded = request(`http://${upstream}${req.url}`, { method: req.method, headers: { ...headers, host: upstream } }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      const limit = opts.dropAfter?.(one);
      let sent = 0;
      answer.on("data", (chunk: Buffer) => {
        if (limit === undefined) {
          res.write(chunk);
          return;
        }
        if (sent >= limit) return;
        const part = chunk.subarray(0, limit - sent);
        sent += part.length;
        res.write(part, () => {
          if (sent >= limit) res.destroy();
        });
      });
      answer.on("end", () => {
        if (limit === undefined) res.end();
      });
    });
    forwarded.on("error", () => res.destroy());
    forwarded.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(
    () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  );
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}
