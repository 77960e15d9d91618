// Speaks to an OCI registry: authentication, redirects, and nothing of a secret anywhere but where it belongs.

import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { ForkdError, messageOf } from "../errors.ts";
import { isLoopback } from "./reference.ts";

const MAX_REDIRECTS = 5;
const MAX_TOKEN_BYTES = 1024 * 1024;
const REQUEST_TIMEOUT_MS = 60_000;
const RETRIES = 4;
const BACKOFF_MS = 300;

const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });

export type RegistryOpts = {
  host: string;
  repository: string;
  username?: string | undefined;
  password?: string | undefined;
  /** plain http although the registry is not this machine */
  insecureHttp?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export class RegistryClient {
  readonly #opts: RegistryOpts;
  readonly #origin: string;
  /** value of the Authorization header that worked last */
  #authorization: string | undefined;

  constructor(opts: RegistryOpts) {
    this.#opts = opts;
    this.#origin = `${opts.insecureHttp || isLoopback(opts.host) ? "http" : "https"}://${opts.host}`;
  }

  /** GET below /v2/<repository>/; the body of the answer must be read or cancelled */
  async get(path: string, headers: Record<string, string> = {}): Promise<Response> {
    const url = `${this.#origin}/v2/${this.#opts.repository}/${path}`;
    for (let attempt = 0; ; attempt++) {
      try {
        const response = await this.#getAuthorized(url, headers);
        if (response.status !== 429 && response.status < 500) return response;
        await response.body?.cancel();
        if (attempt >= RETRIES)
          throw new ForkdError("REGISTRY_FAILED", `The registry ${this.#opts.host} answered ${response.status} to ${path}.`);
      } catch (error) {
        this.#checkAborted();
        if (error instanceof ForkdError || attempt >= RETRIES) throw this.#failed(path, error);
      }
      await this.pause(attempt);
    }
  }

  /** Waits before the next attempt, longer each time */
  async pause(attempt: number): Promise<void> {
    try {
      await sleep(BACKOFF_MS * 2 ** attempt, undefined, this.#opts.signal ? { signal: this.#opts.signal } : {});
    } catch (error) {
      this.#checkAborted();
      throw error;
    }
  }

  #checkAborted(): void {
    if (this.#opts.signal?.aborted) throw new ForkdError("CANCELLED", "The download was cancelled.");
  }

  #failed(path: string, error: unknown): ForkdError {
    if (error instanceof ForkdError) return error;
    const cause = error instanceof Error && error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : messageOf(error);
    return new ForkdError("REGISTRY_FAILED", `Cannot get ${path} of ${this.#opts.repository} from ${this.#opts.host}: ${cause}.`, {
      cause: error,
    });
  }

  async #getAuthorized(url: string, headers: Record<string, string>): Promise<Response> {
    const first = await this.#follow(url, headers, this.#authorization);
    if (first.status !== 401) return first;
    const challenge = first.headers.get("www-authenticate") ?? "";
    await first.body?.cancel();
    this.#authorization = await this.#answer(challenge);
    const second = await this.#follow(url, headers, this.#authorization);
    if (second.status === 401 || second.status === 403) {
      await second.body?.cancel();
      throw new ForkdError(
        "REGISTRY_AUTH",
        `The registry ${this.#opts.host} does not let ${this.#opts.username ? `user ${this.#opts.username}` : "an anonymous user"} read ${this.#opts.repository}.`,
      );
    }
    return second;
  }

  /** Follows redirects by hand: the authorization goes to the registry's own origin and nowhere else */
  async #follow(start: string, headers: Record<string, string>, authorization: string | undefined): Promise<Response> {
    let url = new URL(start);
    for (let hop = 0; hop <= MAX_REDIRECTS; hop++) {
      const own = url.origin === new URL(this.#origin).origin;
      const response = await this.#fetch(url, own && authorization !== undefined ? { ...headers, authorization } : headers);
      const location = response.headers.get("location");
      if (response.status < 300 || response.status >= 400 || location === null) return response;
      await response.body?.cancel();
      url = new URL(location, url);
      this.#checkTransport(url, "redirects to");
    }
    throw new ForkdError("REGISTRY_FAILED", `The registry ${this.#opts.host} redirects more than ${MAX_REDIRECTS} times.`);
  }

  async #answer(challenge: string): Promise<string> {
    const { username, password } = this.#opts;
    const basic =
      username !== undefined && password !== undefined ? `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}` : undefined;
    const scheme = /^\s*(\w+)/.exec(challenge)?.[1]?.toLowerCase();
    if (scheme === "basic") {
      if (basic === undefined) throw new ForkdError("REGISTRY_AUTH", `The registry ${this.#opts.host} wants a user name and a password.`);
      return basic;
    }
    const fields = challengeFields(challenge);
    const realm = fields.get("realm");
    if (scheme !== "bearer" || realm === undefined)
      throw new ForkdError("REGISTRY_AUTH", `The registry ${this.#opts.host} asks for an unknown kind of authentication.`);
    return `Bearer ${await this.#token(realm, fields, basic)}`;
  }

  async #token(realm: string, fields: ReadonlyMap<string, string>, basic: string | undefined): Promise<string> {
    if (!URL.canParse(realm))
      throw new ForkdError("REGISTRY_FAILED", `The registry ${this.#opts.host} names a token server that is not an address.`);
    const url = new URL(realm);
    this.#checkTransport(url, "names the token server");
    const service = fields.get("service");
    if (service !== undefined) url.searchParams.set("service", service);
    // Never more than reading this repository, whatever the challenge asks for
    url.searchParams.set("scope", `repository:${this.#opts.repository}:pull`);
    const response = await this.#fetch(url, basic === undefined ? {} : { authorization: basic });
    if (!response.ok) {
      await response.body?.cancel();
      const code = response.status >= 500 || response.status === 429 ? "REGISTRY_FAILED" : "REGISTRY_AUTH";
      throw new ForkdError(code, `The token server of ${this.#opts.host} answered ${response.status}.`);
    }
    const answer = TokenAnswer.safeParse(JSON.parse((await readBounded(response, MAX_TOKEN_BYTES)).toString("utf8")));
    const token = answer.success ? (answer.data.token ?? answer.data.access_token) : undefined;
    if (token === undefined) throw new ForkdError("REGISTRY_AUTH", `The token server of ${this.#opts.host} gave no token.`);
    return token;
  }

  #checkTransport(url: URL, verb: string): void {
    if (url.protocol === "https:") return;
    const allowed = this.#opts.insecureHttp || (isLoopback(this.#opts.host) && isLoopback(url.host));
    if (url.protocol === "http:" && allowed) return;
    throw new ForkdError(
      "REGISTRY_FAILED",
      `Refused: the registry ${this.#opts.host} ${verb} ${url.protocol}//${url.host}, which is not encrypted.`,
    );
  }

  async #fetch(url: URL, headers: Record<string, string>): Promise<Response> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(new Error(`no answer within ${REQUEST_TIMEOUT_MS} ms`)), REQUEST_TIMEOUT_MS);
    try {
      const signal = this.#opts.signal ? AbortSignal.any([this.#opts.signal, deadline.signal]) : deadline.signal;
      return await fetch(url, { headers: { ...headers, "accept-encoding": "identity" }, redirect: "manual", signal });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The named values of a WWW-Authenticate header */
function challengeFields(challenge: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const match of challenge.matchAll(/([a-zA-Z_]+)=(?:"([^"]*)"|([^\s,]+))/g))
    fields.set((match[1] ?? "").toLowerCase(), match[2] ?? match[3] ?? "");
  return fields;
}

/** A whole body that must not be larger than `limit` */
export async function readBounded(response: Response, limit: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > limit) throw new ForkdError("IMAGE_INVALID", `The registry sent more than ${limit} bytes where a small document belongs.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
