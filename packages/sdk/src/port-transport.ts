// Transport for servers inside a sandbox: HTTP with the interface of `fetch`, and TCP connections.

import { connectionError, type Origin } from "./answer.ts";
import { Deadline } from "./deadline.ts";
import { errorOfAnswer, ForkdError } from "./errors.ts";
import { streamOf, type Fetch } from "./transport.ts";
import type { CallOptions } from "./call-options.ts";
import type { PortRequest } from "./options.ts";
import type { Duplex } from "./ports-node.ts";
import type { Target } from "./target.ts";

/** Header that marks answers of the daemon itself */
const ERROR_HEADER = "x-forkd-error";
/** In place of Authorization, which belongs to the server */
const TOKEN_HEADER = "x-forkd-token";
const PROJECT_HEADER = "x-forkd-project";

export type PortTransportParts = {
  target: Target;
  url: string;
  token: string | undefined;
  project: string | undefined;
  store: string | undefined;
  fetch: Fetch | undefined;
  timeoutMs: number;
};

export class PortTransport {
  private readonly parts: PortTransportParts;

  constructor(parts: PortTransportParts) {
    this.parts = parts;
  }

  /** Any answer of the server is the result; an answer of the daemon is an error */
  async fetch(path: string, init: PortRequest): Promise<Response> {
    const method = (init.method ?? "GET").toUpperCase();
    const signal = init.signal ?? new AbortController().signal;
    signal.throwIfAborted();
    const origin = { method, base: this.parts.url, path };
    try {
      const response = await this.send(path, { ...init, method, signal });
      if (!response.headers.has(ERROR_HEADER)) return response;
      throw this.refusal(origin, response.status, await response.text(), response.headers.get("x-request-id"));
    } catch (error) {
      throw error instanceof ForkdError ? error : connectionError("Cannot reach the daemon", error, origin, { signal });
    }
  }

  /** A TCP connection */
  async connect(path: string, opts: CallOptions): Promise<Duplex> {
    const { openConnection } = await import("./ports-node.ts");
    const { target, url, token, store, project, timeoutMs } = this.parts;
    const origin = { method: "GET", base: url, path };
    const deadline = new Deadline(`GET ${path}`, opts.timeoutMs ?? timeoutMs, opts.signal);
    try {
      const headers = {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(store === undefined ? {} : { "x-forkd-store": store }),
        ...(project === undefined ? {} : { "x-forkd-project": project }),
      };
      const opened = await openConnection(target, path, { headers, signal: deadline.signal });
      if (!("status" in opened)) return opened;
      throw this.refusal(origin, opened.status, opened.body, opened.requestId ?? null);
    } catch (error) {
      throw error instanceof ForkdError ? error : connectionError("Cannot reach the daemon", error, origin, deadline);
    } finally {
      deadline.close();
    }
  }

  private async send(path: string, init: PortRequest): Promise<Response> {
    const { target, token, project, fetch = globalThis.fetch } = this.parts;
    const { body, ...rest } = init;
    const isStream = typeof body === "object" && body !== null && Symbol.asyncIterator in body;
    const headers = new Headers(rest.headers);
    if (token !== undefined) headers.set(TOKEN_HEADER, token);
    if (project !== undefined) headers.set(PROJECT_HEADER, project);
    const request: RequestInit & { duplex?: "half" } = {
      ...rest,
      headers,
      // a followed redirect would send the token to another server
      redirect: "manual",
      ...(body === undefined || body === null ? {} : { body: isStream ? streamOf(body) : body }),
      ...(isStream ? { duplex: "half" } : {}),
    };
    if (target.kind === "url") return await fetch(target.url + path, request);
    const { unixFetch } = await import("./ports-node.ts");
    return await unixFetch(target.socket, new Request("http://forkd/", request), path, isStream);
  }

  private refusal({ method, base, path }: Origin, status: number, body: string, requestId: string | null): ForkdError {
    return errorOfAnswer(status, body, { method, url: base + path, requestId: requestId ?? undefined });
  }
}
