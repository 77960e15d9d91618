// How bytes get to the daemon and back: what every transport does, and the one on fetch.

/** One request, ready to be sent */
export type WireRequest = {
  method: string;
  /** path and query */
  path: string;
  headers: Record<string, string>;
  body: string | Uint8Array | AsyncIterable<Uint8Array> | undefined;
  signal: AbortSignal;
};

/** An answer whose body has not been read; exactly one of `text`, `chunks` and `cancel` must be called */
export type WireResponse = {
  status: number;
  header(name: string): string | undefined;
  text(): Promise<string>;
  chunks(): AsyncIterable<Uint8Array>;
  /** After the last chunk: why the answer is not whole, where the transport can tell */
  problem?(): string | undefined;
  cancel(): void;
};

/** Rejects when no answer came; whatever it rejects with becomes the cause */
export type Transport = (request: WireRequest) => Promise<WireResponse>;

/** The part of fetch that is used */
export type Fetch = (url: string, init: RequestInit & { duplex?: "half" }) => Promise<Response>;

/** A connection that the server had closed while it lay idle: the request never reached anybody */
export class StaleConnection extends Error {
  override readonly name = "StaleConnection";
}

export function fetchTransport(base: string, fetch: Fetch): Transport {
  return async ({ method, path, headers, body, signal }) => {
    const isStream = typeof body === "object" && !(body instanceof Uint8Array);
    const response = await fetch(base + path, {
      method,
      headers,
      signal,
      // The daemon never redirects, and a token must not follow one.
      redirect: "error",
      ...(body === undefined ? {} : { body: isStream ? streamOf(body) : (body as string) }),
      ...(isStream ? { duplex: "half" as const } : {}),
    });
    return {
      status: response.status,
      header: (name) => response.headers.get(name) ?? undefined,
      text: () => response.text(),
      chunks: () => chunksOf(response),
      cancel: () => void response.body?.cancel().catch(() => undefined),
    };
  };
}

/** With a reader: not every browser can iterate a stream */
async function* chunksOf(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  let isDone = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      isDone = done;
      if (done) return;
      yield value;
    }
  } finally {
    // What cancelling fails with has been said by read() already, or nobody listens any more.
    if (!isDone) reader.cancel().catch(() => undefined);
  }
}

export function streamOf(chunks: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}
