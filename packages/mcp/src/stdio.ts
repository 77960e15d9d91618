// One client at standard input and output, until it disconnects.

import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { Connection, type ConnectionOptions } from "./owner.ts";
import { createServer } from "./server.ts";

export type StdioOptions = ConnectionOptions & {
  version: string;
  /** Ends the server, as the end of standard input does */
  signal: AbortSignal;
};

/** Resolves when the client has disconnected and its sandboxes have ended */
export async function serveOverStdio(opts: StdioOptions): Promise<void> {
  const { version, connect, signal, onError } = opts;
  const owner = new Connection(opts);
  const transport = new WatchedTransport();
  const server = serveStdio(() => createServer({ version, connect, owner }), { transport, onerror: onError });
  const stop = (): void => void server.close().catch(onError);
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  await transport.closed;
  signal.removeEventListener("abort", stop);
  await server.close();
  await owner.close();
}

/** Emits its close, whichever side closed it */
class WatchedTransport extends StdioServerTransport {
  readonly #closed = Promise.withResolvers<void>();

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  override async close(): Promise<void> {
    await super.close();
    this.#closed.resolve();
  }
}
