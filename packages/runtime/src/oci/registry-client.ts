// Client of an OCI registry: authentication, and requests that send credentials only to the registry and its token server.

import { z } from "zod";
import { ForkdError } from "../errors.ts";
import type { BlobSource } from "./blob-download.ts";
import type { Descriptor } from "./schema.ts";
import { isLoopback } from "./reference.ts";
import { Web, checkPassing } from "./web.ts";
import type { Upload, WebRequest } from "./web.ts";

const MAX_TOKEN_BYTES = 1024 * 1024;

const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });

export type RegistryOpts = {
  host: string;
  repository: string;
  username?: string | undefined;
  password?: string | undefined;
  /** requests write access; without it only read access */
  push?: boolean | undefined;
  /** further repositories to read, for blobs that are mounted from there */
  alsoRead?: readonly string[] | undefined;
  /** plain http to a remote registry */
  insecureHttp?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export type RegistryRequest = { headers?: Record<string, string>; body?: Upload | undefined };

export class RegistryClient implements BlobSource {
  readonly #opts: RegistryOpts;
  readonly #web: Web;
  readonly #base: URL;
  /** the Authorization header of the last success */
  #authorization: string | undefined;

  constructor(opts: RegistryOpts) {
    this.#opts = opts;
    const origin = `${opts.insecureHttp || isLoopback(opts.host) ? "http" : "https"}://${opts.host}`;
    this.#base = new URL(`${origin}/v2/${opts.repository}/`);
    this.#web = new Web({ ...opts, who: `the registry ${opts.host}`, code: "REGISTRY_FAILED", origin });
  }

  /** GET below /v2/<repository>/; the body of the answer must be read or cancelled */
  async get(path: string, headers: Record<string, string> = {}): Promise<Response> {
    return this.ask("GET", path, { headers });
  }

  /** An idempotent request; repeated until the registry gives a definite answer */
  async ask(method: WebRequest["method"], path: string, request: RegistryRequest = {}): Promise<Response> {
    return this.#persist(method, path, async () => checkPassing(await this.send(method, this.#urlOf(path), request)));
  }

  /** A complete small document */
  async read(path: string, limit: number, headers: Record<string, string> = {}): Promise<{ response: Response; data: Buffer }> {
    return this.#persist("GET", path, async () => {
      const response = await checkPassing(await this.send("GET", this.#urlOf(path), { headers }));
      return { response, data: await readBounded(response, limit) };
    });
  }

  /** One request to an address that the registry named; with credentials only if it is the registry's own */
  async send(method: WebRequest["method"], url: URL, request: RegistryRequest = {}): Promise<Response> {
    const first = await this.#web.request(url, { method, ...request, authorization: this.#authorization });
    if (first.status !== 401) return first;
    const challenge = first.headers.get("www-authenticate") ?? "";
    await first.body?.cancel();
    this.#checkChallenger(first.url);
    this.#authorization = await this.#answer(challenge);
    const second = await this.#web.request(url, { method, ...request, authorization: this.#authorization });
    if (second.status !== 401 && second.status !== 403) return second;
    await second.body?.cancel();
    const { host, username, repository } = this.#opts;
    const who = username ? `user ${username}` : "an anonymous user";
    throw new ForkdError(
      "REGISTRY_AUTH",
      `The registry ${host} does not let ${who} ${method === "GET" || method === "HEAD" ? "read" : "write"} ${repository}.`,
    );
  }

  /** Upload address of a blob, from an answer of the registry */
  locationOf(response: Response): URL {
    const location = response.headers.get("location");
    if (location === null) throw this.failure(`The registry ${this.#opts.host} gives no upload address.`);
    return this.#web.resolve(location, this.#base);
  }

  async open(blob: Descriptor, offset: number): Promise<{ response: Response; at: number | undefined }> {
    const response = await this.get(`blobs/${blob.digest}`, offset > 0 ? { range: `bytes=${offset}-` } : {});
    const isFrom = (response.headers.get("content-range") ?? "").startsWith(`bytes ${offset}-`);
    return { response, at: response.status === 200 ? 0 : response.status === 206 && isFrom ? offset : undefined };
  }

  /** Waits before the next attempt, with increasing delay */
  async pause(attempt: number): Promise<void> {
    await this.#web.pause(attempt);
  }

  failure(message: string, cause?: unknown): ForkdError {
    return this.#web.failure(message, cause);
  }

  async #persist<T>(method: string, path: string, work: () => Promise<T>): Promise<T> {
    const { host, repository } = this.#opts;
    const verb = method === "GET" || method === "HEAD" ? "get" : "write";
    return this.#web.persist(`Cannot ${verb} ${path.split("?")[0]} of ${repository} at ${host}`, work);
  }

  /** A server that the registry redirects to must not choose the token server: credentials would be sent there (CVE-2020-15157) */
  #checkChallenger(url: string): void {
    const { origin, host } = new URL(url);
    if (origin === this.#base.origin) return;
    throw new ForkdError("REGISTRY_AUTH", `The registry ${this.#opts.host} redirects to ${host}, which asks for a login of its own.`);
  }

  #urlOf(path: string): URL {
    return new URL(path, this.#base);
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
    const { host, repository, push, alsoRead = [] } = this.#opts;
    if (!URL.canParse(realm)) throw this.failure(`The registry ${host} names a token server that is not an address.`);
    const url = new URL(realm);
    this.#web.checkTransport(url, "names the token server");
    const service = fields.get("service");
    if (service !== undefined) url.searchParams.set("service", service);
    // Only the scope that is needed, whatever the challenge requests.
    url.searchParams.set("scope", `repository:${repository}:${push ? "pull,push" : "pull"}`);
    for (const other of alsoRead) url.searchParams.append("scope", `repository:${other}:pull`);
    const login = new Web({ ...this.#opts, who: `the token server of ${host}`, code: "REGISTRY_FAILED", origin: url.origin });
    const response = await login.request(url, { method: "GET", authorization: basic });
    if (!response.ok) {
      await response.body?.cancel();
      const code = response.status >= 500 || response.status === 429 ? "REGISTRY_FAILED" : "REGISTRY_AUTH";
      throw new ForkdError(code, `The token server of ${host} answered ${response.status}.`);
    }
    const answer = TokenAnswer.safeParse(JSON.parse((await readBounded(response, MAX_TOKEN_BYTES)).toString("utf8")));
    const token = answer.success ? (answer.data.token ?? answer.data.access_token) : undefined;
    if (token === undefined) throw new ForkdError("REGISTRY_AUTH", `The token server of ${host} gave no token.`);
    return token;
  }
}

/** The parameters of a WWW-Authenticate header */
function challengeFields(challenge: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const match of challenge.matchAll(/([a-zA-Z_]+)=(?:"([^"]*)"|([^\s,]+))/g))
    fields.set((match[1] ?? "").toLowerCase(), match[2] ?? match[3] ?? "");
  return fields;
}

/** A complete body of at most `limit` bytes */
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
