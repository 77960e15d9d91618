// Response of a front end to one request.

import type { ServerResponse } from "node:http";

/** Relays another server's response; headers set earlier are kept. Rejects if the head cannot be written */
export type Passage = (to: ServerResponse) => Promise<void>;

export type Answer = {
  status: number;
  /** a value for JSON, text, bytes, a stream, a `Passage`, or with status 101 a `Takeover` */
  body?: unknown;
  headers?: Record<string, string>;
  /** send the headers immediately, because the first byte of the body may be late */
  flush?: boolean;
};
