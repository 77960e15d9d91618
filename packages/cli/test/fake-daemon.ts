// A daemon that answers from a table and records requests.

import { createServer } from "node:http";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { temporaryFolder } from "./helpers.ts";

import type { IncomingHttpHeaders, ServerResponse } from "node:http";

export type Asked = { method: string; path: string; body: unknown; bytes: Buffer; headers: IncomingHttpHeaders };

/** Status and JSON, or a function that writes the response */
export type Answer = { status?: number; json?: unknown } | ((asked: Asked, response: ServerResponse) => void);

export type FakeDaemon = AsyncDisposable & {
  /** environment that points the CLI to it */
  env: Record<string, string>;
  folder: string;
  asked: Asked[];
  /** `METHOD /path` without the query */
  answers: Record<string, Answer>;
  /** requests, as `METHOD /path?query` */
  lines: () => string[];
};

export async function fakeDaemon(answers: Record<string, Answer> = {}): Promise<FakeDaemon> {
  const folder = await temporaryFolder();
  const asked: Asked[] = [];
  const table = { ...answers };
  const server = createServer((request, response) => {
    void buffer(request).then((bytes) => {
      const isJson = request.headers["content-type"] === "application/json";
      const { method = "", url = "" } = request;
      const entry = { method, path: url, bytes, body: isJson ? JSON.parse(bytes.toString()) : undefined, headers: request.headers };
      asked.push(entry);
      answer(table[`${method} ${url.split("?")[0]}`] ?? missing(url), entry, response);
    });
  });
  await new Promise<void>((done) => server.listen(join(folder.path, "forkd.sock"), done));
  return {
    env: { FORKD_RUN: folder.path, FORKD_HOME: join(folder.path, "home") },
    folder: folder.path,
    asked,
    answers: table,
    lines: () => asked.map((entry) => `${entry.method} ${entry.path}`),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
      await folder[Symbol.asyncDispose]();
    },
  };
}

export function problem(status: number, code: string, error: string, hint = "Do something."): Answer {
  return { status, json: { error, code, hint, request_id: "req-1" } };
}

function missing(url: string): Answer {
  return problem(404, "NOT_FOUND", `There is no answer for ${url} in the table.`);
}

function answer(given: Answer, asked: Asked, response: ServerResponse): void {
  if (typeof given === "function") {
    given(asked, response);
    return;
  }
  const hasBody = given.json !== undefined;
  response.writeHead(given.status ?? (hasBody ? 200 : 204), hasBody ? { "content-type": "application/json" } : {});
  response.end(hasBody ? JSON.stringify(given.json) : undefined);
}
