// Signed statement of a gateway about one request: who asks, and from where. Nodes of a cluster trust it instead of a token.

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { scope } from "../api/common.ts";
import { quotaUsed } from "../api/project.ts";

export const IDENTITY_HEADER = "x-forkd-identity";

/** How long a statement is valid; clocks of gateway and node may differ by half of it */
export const VALID_MS = 30_000;
const MAX_LENGTH = 12_000;
const NONCE_BYTES = 12;
/** Nonces remembered at once; a node that is asked more often refuses for a moment */
const MAX_NONCES = 500_000;
/** PROJECT/NAME */
const MAX_NAME = 129;
/** Names that only the daemon gives */
const OWN_NAMES = new Set(["local", "daemon"]);

const claim = z.strictObject({
  /** null: the request's own credentials count, such as an access token */
  name: z.string().max(MAX_NAME).nullable(),
  scope,
  project: z.string().max(64).nullable(),
  max_sandboxes: z.int().nullable(),
  /** fingerprint of the token's value; access tokens and preview links depend on it */
  stamp: z.string().max(64).nullable(),
  /** when the token got its value, in ms */
  since: z.number(),
  /** address of the client */
  remote: z.string().max(64),
  /** tokens that were revoked, and when in ms */
  revoked: z.array(z.tuple([z.string().max(MAX_NAME), z.number()])).max(64),
  /** what the project uses on the other nodes; null: the gateway does not know, or the project has no limit */
  elsewhere: quotaUsed.nullable(),
});

const signed = z.strictObject({ ...claim.shape, exp: z.number(), nonce: z.string().max(32), request: z.string().max(64) });

export type Claim = z.infer<typeof claim>;
type Asked = { method: string; url: string };

/** @param keys the first signs; the others were in use before a rotation */
export function signClaim(stated: Claim, asked: Asked, keys: readonly Buffer[], nowMs: number = Date.now()): string {
  const [key] = keys;
  if (!key) throw new ForkdError("BAD_CONFIG", "Cannot sign a request: there is no key of the cluster.");
  const full = { ...stated, exp: nowMs + VALID_MS / 2, nonce: randomBytes(NONCE_BYTES).toString("base64url"), request: hashOf(asked) };
  const body = Buffer.from(JSON.stringify(full)).toString("base64url");
  return `${body}.${signatureOf(body, key).toString("base64url")}`;
}

/** Checks statements, each of which is accepted once */
export class ClaimReader {
  #keys: readonly Buffer[];
  readonly #nowMs: () => number;
  /** nonces of this period and of the one before; a period is as long as a statement is valid */
  #nonces: [Set<string>, Set<string>] = [new Set(), new Set()];
  #periodMs: number;

  constructor(keys: readonly Buffer[], opts: { nowMs?: () => number } = {}) {
    this.#keys = keys;
    this.#nowMs = opts.nowMs ?? Date.now;
    this.#periodMs = this.#nowMs();
  }

  set keys(keys: readonly Buffer[]) {
    this.#keys = keys;
  }

  /** Throws UNAUTHORIZED or BUSY */
  read(header: string, asked: Asked): Claim {
    const [body = "", signature = "", ...rest] = header.slice(0, MAX_LENGTH + 1).split(".");
    if (header.length > MAX_LENGTH || rest.length > 0) throw refusal("it is malformed");
    const given = Buffer.from(signature, "base64url");
    const isSigned = this.#keys.reduce((found, key) => isSame(given, signatureOf(body, key)) || found, false);
    if (!isSigned) throw refusal("its signature is not one of this cluster");
    const parsed = signed.safeParse(JSON.parse(Buffer.from(body, "base64url").toString()));
    if (!parsed.success) throw refusal("the gateway has another version");
    const { exp, nonce, request, ...stated } = parsed.data;
    const now = this.#nowMs();
    if (exp < now || exp > now + VALID_MS) throw refusal("it is not of this moment; check the clocks");
    if (request !== hashOf(asked)) throw refusal("it is for another request");
    if (stated.name !== null && OWN_NAMES.has(stated.name)) throw refusal(`the name ${stated.name} is the daemon's own`);
    this.#useOnce(nonce, now);
    return stated;
  }

  #useOnce(nonce: string, now: number): void {
    if (now - this.#periodMs >= VALID_MS) {
      this.#nonces = [new Set(), this.#nonces[0]];
      this.#periodMs = now;
    }
    const [recent, before] = this.#nonces;
    if (recent.has(nonce) || before.has(nonce)) throw refusal("it was used before");
    if (recent.size >= MAX_NONCES) throw new ForkdError("BUSY", "Cannot check the gateway's statement: too many requests came at once.");
    recent.add(nonce);
  }
}

function refusal(why: string): ForkdError {
  return new ForkdError("UNAUTHORIZED", `Cannot trust the gateway's statement: ${why}.`, {
    hint: "Give gateways and nodes the same `cluster_key_file`.",
  });
}

function signatureOf(body: string, key: Buffer): Buffer {
  return createHmac("sha256", key).update(body).digest();
}

function hashOf({ method, url }: Asked): string {
  return createHash("sha256").update(`${method} ${url}`).digest("base64url");
}

function isSame(given: Buffer, right: Buffer): boolean {
  return given.length === right.length && timingSafeEqual(given, right);
}
