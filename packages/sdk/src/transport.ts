// Interface of transports to the daemon, and the transport on fetch.

/** One request, ready to send */
export type WireRequest = {
  method: string;
  /** path and query */
  path: string;
  headers: Record<string, string>;
  body: string | Uint8Array | AsyncIterable<Uint8Array> | undefined;
  signal: AbortSignal;
};

/** An answer with an unread body; call exactly one of `text`, `chunks` and `cancel` */
export type WireResponse = {
  status: number;
  header(name: string): string | undefined;
  text(): Promise<string>;
  chunks(): AsyncIterable<Uint8Array>;
  /** After the last chunk: why the answer is incomplete, if the transport can detect it */
  problem?(): string | undefined;
  cancel(): void;
};

/** Rejects when there was no answer; the rejection becomes the cause */
export type Transport = (request: WireRequest) => Promise<WireResponse>;

/** The used subset of fetch */
export type Fetch = (url: string, init: RequestInit & { duplex?: "half" }) => Promise<Response>;

/** The server closed the connection while it was idle; it did not process the request */
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
      // The daemon does not redirect, and a redirect must not get the token.
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

/** With a reader: some browsers cannot iterate a stream */
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
    // read() has already reported the error, or the stream is no longer read.
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
