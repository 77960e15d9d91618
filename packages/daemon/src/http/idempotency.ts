// Requests with an Idempotency-Key: done once, however often they are sent.

import { createHash } from "node:crypto";
import { routes, type RouteName } from "../api/routes.ts";
import { ForkdError } from "../errors.ts";
import type { Route } from "../api/route.ts";
import type { IdempotencyStore } from "../store/idempotency.ts";
import type { AnyAnswer } from "./handler.ts";

const KEY = /^[\x20-\x7e]{1,128}$/;
/** Larger answers are not kept; asking for one again is answered with OUTCOME_UNKNOWN */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;

/** The manager writes their answer in the transaction that makes the thing: no answer means that nothing was made */
const SAFE_TO_REPEAT = new Set<RouteName>([
  "createSandboxes",
  "forkSandbox",
  "branchSandbox",
  "createSnapshot",
  "createWorkspace",
  "createImage",
]);
/** Their answers are secrets, which are not stored */
const SECRET = new Set<RouteName>(["createToken", "rotateToken"]);

export type KeyedRequest = { route: RouteName; principal: string; key: string; hash: Buffer };
type Remember = (status: number, body: unknown) => void;

/** null: the request has no key; throws when it has one that cannot be used */
export function keyOf(route: RouteName, header: string | string[] | undefined): string | null {
  if (header === undefined) return null;
  const { body }: Route = routes[route];
  if (body === "bytes")
    throw new ForkdError(
      "BAD_REQUEST",
      "Cannot use Idempotency-Key here: what comes piece by piece cannot be compared with what came before.",
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

  /** Does the work unless its answer is known; one that is under way elsewhere is waited for */
  async run(request: KeyedRequest, work: (remember: Remember) => Promise<AnyAnswer>): Promise<AnyAnswer> {
    const id = `${request.principal}\n${request.key}`;
    for (;;) {
      const running = this.#running.get(id);
      if (!running) break;
      refuseOther(running.hash, request);
      await running.done;
    }
    const known = this.#store.find(request.principal, request.key);
    if (known) {
      refuseOther(known.requestHash, request);
      if (known.answer) return { ...replayed(known.answer), headers: { "idempotent-replayed": "true" } };
      if (!SAFE_TO_REPEAT.has(request.route))
        throw new ForkdError("OUTCOME_UNKNOWN", "Cannot say how this request ended: its answer was not kept.");
    }
    const answer = this.#first(request, work);
    // whoever waits reads the store afterwards, and tries again itself after a failure
    const done = answer.then(
      () => this.#running.delete(id),
      () => this.#running.delete(id),
    );
    this.#running.set(id, { hash: request.hash, done });
    return answer;
  }

  async #first({ route, principal, key, hash }: KeyedRequest, work: (remember: Remember) => Promise<AnyAnswer>): Promise<AnyAnswer> {
    this.#store.begin(principal, key, hash);
    let isWritten = false;
    const remember: Remember = (status, body) => {
      this.#store.finish(principal, key, { status, body: JSON.stringify(body ?? null) });
      isWritten = true;
    };
    try {
      const answer = await work(remember);
      if (isWritten) return answer;
      const body = JSON.stringify(answer.body ?? null);
      if (body.length <= MAX_KEPT_BYTES || SAFE_TO_REPEAT.has(route)) this.#store.finish(principal, key, { status: answer.status, body });
      return answer;
    } catch (error) {
      this.#store.forget(principal, key);
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
