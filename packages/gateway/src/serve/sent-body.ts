// Body of a client's request on its way to a node: the beginning is kept, because a sandbox that has moved is asked again.

import type { ClientRequest, IncomingMessage } from "node:http";

/** Larger bodies cannot be sent again */
const MAX_KEPT_BYTES = 1024 * 1024;

export class SentBody {
  readonly #request: IncomingMessage;
  #kept: Buffer[] | null = [];
  #bytes = 0;
  #to: ClientRequest | null = null;

  constructor(request: IncomingMessage) {
    this.#request = request;
  }

  /** Whether all that was sent can be sent again */
  get isKept(): boolean {
    return this.#kept !== null;
  }

  /** From its beginning */
  sendTo(outgoing: ClientRequest): void {
    const request = this.#request;
    if (this.#to) request.unpipe(this.#to);
    else request.on("data", this.#keep);
    this.#to = outgoing;
    for (const piece of this.#kept ?? []) outgoing.write(piece);
    if (request.readableEnded) outgoing.end();
    else request.pipe(outgoing);
  }

  /** It has reached its node */
  release(): void {
    this.#request.off("data", this.#keep);
    this.#kept = null;
  }

  readonly #keep = (piece: Buffer): void => {
    this.#bytes += piece.length;
    if (this.#bytes > MAX_KEPT_BYTES) this.#kept = null;
    this.#kept?.push(piece);
  };
}
