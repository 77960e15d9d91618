// HTTP requests to remote servers: plain http only to this machine, redirects followed by hand, credentials only for their own server.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "../errors.ts";
import { isLoopback } from "./reference.ts";

const MAX_REDIRECTS = 5;
/** until an answer begins, or until the next part of the request body is read */
const REQUEST_TIMEOUT_MS = 60_000;
const BACKOFF_MS = 300;
const RETRIES = 4;

export type WebOpts = {
  /** the server in messages: "the registry example.org" */
  who: string;
  code: "REGISTRY_FAILED" | "HUB_FAILED";
  /** the only origin that gets credentials */
  origin: string;
  /** plain http to a remote server */
  insecureHttp?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

/** The request body; opened again for each attempt */
export type Upload = { bytes: number; open: () => AsyncIterable<Uint8Array> };

export type WebRequest = {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH";
  headers?: Record<string, string>;
  authorization?: string | undefined;
  body?: Upload | undefined;
};

export class Web {
  readonly #opts: WebOpts;
  readonly #origin: URL;

  constructor(opts: WebOpts) {
    this.#opts = opts;
    this.#origin = new URL(opts.origin);
    this.checkTransport(this.#origin, "is at");
  }

  /** The body of the answer must be read or cancelled */
  async request(start: URL, request: WebRequest): Promise<Response> {
    let url = start;
    for (let hop = 0; hop <= MAX_REDIRECTS; hop++) {
      const response = await this.#fetch(url, request);
      const location = response.headers.get("location");
      // a request with a body is not redirected to another server
      const isRedirect = response.status >= 300 && response.status < 400 && location !== null && request.body === undefined;
      if (!isRedirect) return response;
      await response.body?.cancel();
      url = this.resolve(location, url);
    }
    throw this.failure(`${capital(this.#opts.who)} redirects more than ${MAX_REDIRECTS} times.`);
  }

  /** An address from the server's answer */
  resolve(location: string, base: URL): URL {
    if (!URL.canParse(location, base.href)) throw this.failure(`${capital(this.#opts.who)} sent an invalid address.`);
    const url = new URL(location, base);
    this.checkTransport(url, "redirects to");
    return url;
  }

  checkTransport(url: URL, verb: string): void {
    if (url.protocol === "https:") return;
    const allowed = this.#opts.insecureHttp || (isLoopback(this.#origin.host) && isLoopback(url.host));
    if (url.protocol === "http:" && allowed) return;
    throw new ForkdError(this.#opts.code, `Refused: ${this.#opts.who} ${verb} ${url.protocol}//${url.host}, which is not encrypted.`, {
      hint: "Use https, or `insecure_http=true` if the network is yours alone.",
    });
  }

  /** Repeats work after temporary failures, which are all errors but ForkdError */
  async persist<T>(what: string, work: () => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        this.checkAborted();
        if (error instanceof ForkdError) throw error;
        if (attempt >= RETRIES) throw this.failure(`${what}: ${whyFailed(error)}.`, error);
      }
      await this.pause(attempt);
    }
  }

  /** Waits before the next attempt, with increasing delay */
  async pause(attempt: number): Promise<void> {
    try {
      await sleep(BACKOFF_MS * 2 ** attempt, undefined, this.#opts.signal ? { signal: this.#opts.signal } : {});
    } catch (error) {
      this.checkAborted();
      throw error;
    }
  }

  checkAborted(): void {
    if (this.#opts.signal?.aborted) throw new ForkdError("CANCELLED", "The transfer was cancelled.");
  }

  failure(message: string, cause?: unknown): ForkdError {
    return new ForkdError(this.#opts.code, message, cause === undefined ? {} : { cause });
  }

  async #fetch(url: URL, request: WebRequest): Promise<Response> {
    const { method, headers, authorization, body } = request;
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(new Error(`no answer within ${REQUEST_TIMEOUT_MS} ms`)), REQUEST_TIMEOUT_MS);
    const signal = this.#opts.signal ? AbortSignal.any([this.#opts.signal, deadline.signal]) : deadline.signal;
    const own = url.origin === this.#origin.origin && authorization !== undefined ? { authorization } : {};
    try {
      return await fetch(url, {
        method,
        redirect: "manual",
        signal,
        headers: {
          ...headers,
          ...own,
          "accept-encoding": "identity",
          // with Content-Length, because many stores require it
          ...(body && { "content-length": String(body.bytes) }),
        },
        ...(body && { body: refreshing(body.open(), timer), duplex: "half" as const }),
      });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Why a request got no answer; the error of fetch says only that it failed */
export function whyFailed(error: unknown): string {
  return error instanceof Error && error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : messageOf(error);
}

/** Throws an error that `persist` retries when the server was overloaded or failed */
export async function checkPassing(response: Response): Promise<Response> {
  if (response.status !== 429 && response.status < 500) return response;
  await response.body?.cancel();
  throw new Error(`the server answered ${response.status}`);
}

async function* refreshing(chunks: AsyncIterable<Uint8Array>, timer: NodeJS.Timeout): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    yield chunk;
    timer.refresh();
  }
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
