// A web server with one file: counts bytes, and on request drops connections, lacks ranges or requires a login.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export type FileServerOpts = {
  ranges?: boolean;
  /** bytes of an answer after which the connection is dropped */
  dropAfter?: (request: { nth: number; start: number }) => number | undefined;
  /** required Authorization header */
  login?: string;
};

export type FileServer = {
  url: string;
  content: Buffer;
  /** bytes of sent bodies */
  sent: () => number;
  /** of the requests, in order */
  seen: { method: string; url: string; range: string | undefined; authorization: string | undefined; length: string | undefined }[];
};

export async function startFileServer(t: TestContext, content: Buffer, opts: FileServerOpts = {}): Promise<FileServer> {
  let sent = 0;
  const server = createServer((req, res) => {
    const { range, authorization } = req.headers;
    file.seen.push({ method: req.method ?? "", url: req.url ?? "", range, authorization, length: req.headers["content-length"] });
    if (opts.login !== undefined && authorization !== opts.login) {
      req.resume();
      res.writeHead(401, { "www-authenticate": 'Basic realm="files"' }).end();
      return;
    }
    if (req.method === "PUT") {
      const chunks: Buffer[] = [];
      req.on("data", (chunk: Buffer) => chunks.push(chunk));
      req.on("end", () => {
        file.content = Buffer.concat(chunks);
        res.writeHead(201).end();
      });
      return;
    }
    const [, first, last] = (opts.ranges !== false && /^bytes=(\d+)-(\d*)$/.exec(range ?? "")) || [];
    const start = Number(first ?? 0);
    const end = last ? Math.min(Number(last) + 1, file.content.length) : file.content.length;
    const total = file.content.length;
    const headers = { "content-length": end - start, ...(first && { "content-range": `bytes ${start}-${end - 1}/${total}` }) };
    res.writeHead(first ? 206 : 200, headers);
    const limit = opts.dropAfter?.({ nth: file.seen.length, start });
    const part = file.content.subarray(start, Math.min(end, start + (limit ?? Infinity)));
    sent += part.length;
    if (limit === undefined || part.length === end - start) res.end(part);
    else res.write(part, () => res.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/packs/agent.forkd`;
  const file: FileServer = { url, content, sent: () => sent, seen: [] };
  return file;
}
