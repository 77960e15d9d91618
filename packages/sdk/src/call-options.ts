// Options that calls share.

import type { Fetch } from "./transport.ts";
import type { Progress } from "./schema.gen.ts";

/** Address of the daemon. Default: FORKD_URL, FORKD_SOCKET, then the daemon's default socket; in a browser http://127.0.0.1:8889 */
export type ControllerOptions = {
  /** `http://…`, `https://…` or `unix:///path` */
  url?: string | undefined;
  /** Path of the daemon's Unix socket */
  socket?: string | undefined;
  /** Without it FORKD_TOKEN; a Unix socket needs no token */
  token?: string | undefined;
  /** The project to act in, for a token of scope operator; `*` lists across all. Without it FORKD_PROJECT, else that of the token */
  project?: string | undefined;
  /** Time limit of a call; 0: no limit. @default 60000 */
  timeoutMs?: number | undefined;
  /** How often a call that is safe to repeat is retried. @default 2 */
  retries?: number | undefined;
  /** Used in place of the global fetch, except for Unix sockets */
  fetch?: Fetch | undefined;
  /** @deprecated the older SDK's name for `url` */
  baseUrl?: string | undefined;
};

/** Options of every call */
export type CallOptions = {
  /** Aborts the call; it rejects with the signal's reason */
  signal?: AbortSignal | undefined;
  /** Time limit of this call; 0: no limit */
  timeoutMs?: number | undefined;
};

/** Options of calls that take effect once, however often they are sent */
export type OnceOptions = CallOptions & {
  /**
   * Idempotency key. A call with a key is retried when its answer was lost, and the daemon completes it when the client disconnects.
   * Creations generate one. null: no key, so an abort cancels the work in the daemon
   */
  idempotencyKey?: string | null | undefined;
};

export type PageOptions = CallOptions & {
  /** Entries per page; without it, all */
  limit?: number | undefined;
  /** `nextCursor` of the previous page */
  cursor?: string | undefined;
};

/** An array with the cursor of the next page; null on the last page */
export type Page<T> = T[] & { readonly nextCursor: string | null };

export type ProgressOptions = OnceOptions & {
  /** Called with each progress message of long work */
  onProgress?: ((progress: Progress) => void) | undefined;
};

/** Content of a write: text, bytes, or bytes in pieces */
export type FileContent = string | Uint8Array | AsyncIterable<Uint8Array>;
