// Requests to servers that others run: plain http to this machine only, redirects by hand, and a login only to whom it belongs.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "../errors.ts";
import { isLoopback } from "./reference.ts";

const MAX_REDIRECTS = 5;
/** until an answer begins, or until the next part of what is sent is taken */
const REQUEST_TIMEOUT_MS = 60_000;
const BACKOFF_MS = 300;
const RETRIES = 4;

export type WebOpts = {
  /** who is asked, as messages name it: "the registry example.org" */
  who: string;
  code: "REGISTRY_FAILED" | "HUB_FAILED";
  /** a login goes here and nowhere else */
  origin: string;
  /** plain http although the server is not this machine */
  insecureHttp?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

/** What is sent; opened again for each attempt */
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
      // what was sent is not sent again to somebody else
      const isRedirect = response.status >= 300 && response.status < 400 && location !== null && request.body === undefined;
      if (!isRedirect) return response;
      await response.body?.cancel();
      url = this.resolve(location, url);
    }
    throw this.failure(`${capital(this.#opts.who)} redirects more than ${MAX_REDIRECTS} times.`);
  }

  /** An address that the server named */
  resolve(location: string, base: URL): URL {
    if (!URL.canParse(location, base.href)) throw this.failure(`${capital(this.#opts.who)} names an address that is none.`);
    const url = new URL(location, base);
    this.checkTransport(url, "redirects to");
    return url;
  }

  checkTransport(url: URL, verb: string): void {
    if (url.protocol === "https:") return;
    const allowed = this.#opts.insecureHttp || (isLoopback(this.#origin.host) && isLoopback(url.host));
    if (url.protocol === "http:" && allowed) return;
    throw new ForkdError(this.#opts.code, `Refused: ${this.#opts.who} ${verb} ${url.protocol}//${url.host}, which is not encrypted.`, {
      hint: "Use https, or --insecure-http if the network is yours alone.",
    });
  }

  /** Repeats work that failed for a reason that may pass, which is anything but a ForkdError */
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

  /** Waits before the next attempt, longer each time */
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
          // with a length of its own, as many stores take nothing else
          ...(body && { "content-length": String(body.bytes) }),
        },
        ...(body && { body: refreshing(body.open(), timer), duplex: "half" as const }),
      });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Why a request got no answer; what fetch throws says only that it failed */
export function whyFailed(error: unknown): string {
  return error instanceof Error && error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : messageOf(error);
}

/** Throws what `persist` repeats when the server had no time, or no luck */
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
