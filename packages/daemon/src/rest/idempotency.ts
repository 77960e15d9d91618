// Idempotency-Key support: a keyed request runs once, and repetitions get the stored response.

import { createHash } from "node:crypto";
import { routes, type RouteName } from "../api/routes.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { Route } from "../api/route.ts";
import type { Client, IdempotencyStore } from "../store/idempotency.ts";
import type { Answer } from "../dispatch/answer.ts";

const KEY = /^[\x20-\x7e]{1,128}$/;
/** Larger responses are not stored; a repetition then gets OUTCOME_UNKNOWN */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;

/** The response is stored in the transaction of the creation: without a stored response nothing was created */
const SAFE_TO_REPEAT = new Set<RouteName>([
  "createSandboxes",
  "forkSandbox",
  "branchSandbox",
  "createSnapshot",
  "createWorkspace",
  "createImage",
]);
/** Responses that contain secrets and are never stored */
const SECRET = new Set<RouteName>(["createToken", "rotateToken", "createPreview", "createUiLink"]);

export type KeyedRequest = { route: RouteName; client: Client; key: string; hash: Buffer };
type Remember = (status: number, body: unknown) => void;

/** null: the request has no key. Throws if the key is invalid or the route does not support one */
export function keyOf(route: RouteName, header: string | string[] | undefined): string | null {
  if (header === undefined) return null;
  const { body }: Route = routes[route];
  if (body === "bytes")
    throw new ForkdError(
      "BAD_REQUEST",
      "Cannot use Idempotency-Key here: a streamed body cannot be compared with that of the first request.",
    );
  if (SECRET.has(route))
    throw new ForkdError("BAD_REQUEST", "Cannot use Idempotency-Key here: the answer is a secret, which is not stored for repetition.");
  if (typeof header !== "string" || !KEY.test(header))
    throw new ForkdError("BAD_REQUEST", "Cannot use the Idempotency-Key: it must be 1 to 128 printable ASCII characters.");
  return header;
}

export function hashRequest(route: RouteName, input: { params: unknown; query: unknown; body: unknown }): Buffer {
  return createHash("sha256")
    .update(JSON.stringify([route, input.params, input.query, input.body]))
    .digest();
}

export class Idempotency {
  readonly #store: IdempotencyStore;
  readonly #running = new Map<string, { hash: Buffer; done: Promise<unknown> }>();

  constructor(store: IdempotencyStore) {
    this.#store = store;
  }

  /** Runs the work unless its response is stored; waits if the same request is in progress */
  async run(request: KeyedRequest, work: (remember: Remember) => Promise<Answer>): Promise<Answer> {
    const id = `${request.client.project}\n${request.client.principal}\n${request.key}`;
    for (;;) {
      const running = this.#running.get(id);
      if (!running) break;
      refuseOther(running.hash, request);
      await running.done;
    }
    const known = this.#store.find(request.client, request.key);
    if (known) {
      refuseOther(known.requestHash, request);
      if (known.answer) return { ...replayed(known.answer), headers: { "idempotent-replayed": "true" } };
      if (!SAFE_TO_REPEAT.has(request.route))
        throw new ForkdError("OUTCOME_UNKNOWN", "Cannot report the outcome of this request: its answer was not stored.");
    }
    const answer = this.#first(request, work);
    // a waiting repetition then reads the store; after a failure it runs the work itself
    const done = answer.then(
      () => this.#running.delete(id),
      () => this.#running.delete(id),
    );
    this.#running.set(id, { hash: request.hash, done });
    return answer;
  }

  async #first({ route, client, key, hash }: KeyedRequest, work: (remember: Remember) => Promise<Answer>): Promise<Answer> {
    this.#store.begin(client, key, hash);
    let isWritten = false;
    const remember: Remember = (status, body) => {
      this.#store.finish(client, key, { status, body: JSON.stringify(body ?? null) });
      isWritten = true;
    };
    try {
      const answer = await work(remember);
      if (isWritten) return answer;
      const body = JSON.stringify(answer.body ?? null);
      if (body.length <= MAX_KEPT_BYTES || SAFE_TO_REPEAT.has(route)) this.#store.finish(client, key, { status: answer.status, body });
      return answer;
    } catch (error) {
      this.#store.forget(client, key);
      throw error;
    }
  }
}

function refuseOther(hash: Buffer, request: KeyedRequest): void {
  if (hash.equals(request.hash)) return;
  throw new ForkdError("IDEMPOTENCY_MISMATCH", "Cannot use this Idempotency-Key: it belongs to another request.");
}

function replayed(answer: { status: number; body: string }): { status: number; body: unknown } {
  return { status: answer.status, body: JSON.parse(answer.body) };
}
