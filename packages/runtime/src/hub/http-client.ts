// One URL of a web server: range reads and uploads.

import { ForkdError } from "../errors.ts";
import { readBounded } from "../oci/registry-client.ts";
import { Web, checkPassing } from "../oci/web.ts";
import type { Upload, WebRequest } from "../oci/web.ts";
import { withoutQuery } from "./place.ts";

export type HttpOpts = {
  username?: string | undefined;
  password?: string | undefined;
  /** plain http to a remote server */
  insecureHttp?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export class HttpClient {
  readonly #url: URL;
  readonly #opts: HttpOpts;
  readonly #web: Web;
  /** without a query, for messages */
  readonly shown: string;
  #authorization: string | undefined;

  constructor(url: URL, opts: HttpOpts) {
    this.#url = url;
    this.#opts = opts;
    this.shown = withoutQuery(url);
    this.#web = new Web({ ...opts, who: `the server of ${this.shown}`, code: "HUB_FAILED", origin: url.origin });
  }

  /** The bytes from `start` to before `end`; a server may answer with the complete file */
  async get(start?: number, end?: number): Promise<Response> {
    const range = start === undefined ? {} : { range: `bytes=${start}-${end === undefined ? "" : end - 1}` };
    const response = await this.#repeated({ method: "GET", headers: range });
    if (response.ok || response.status === 416) return response;
    await response.body?.cancel();
    throw this.#refused(response.status, "read");
  }

  /** A complete small document */
  async read(limit: number): Promise<Buffer> {
    return this.#web.persist(`Cannot read ${this.shown}`, async () => readBounded(await this.get(), limit));
  }

  async put(body: Upload): Promise<void> {
    // request without a body first: a server that needs a login would refuse the upload after all bytes were sent
    if (this.#opts.username !== undefined) await this.#discard(await this.#repeated({ method: "HEAD" }));
    const response = await this.#repeated({ method: "PUT", body, headers: { "content-type": "application/octet-stream" } });
    await this.#discard(response);
    if (!response.ok) throw this.#refused(response.status, "write");
  }

  async pause(attempt: number): Promise<void> {
    await this.#web.pause(attempt);
  }

  failure(message: string, cause?: unknown): ForkdError {
    return this.#web.failure(message, cause);
  }

  async #repeated(request: WebRequest): Promise<Response> {
    const work = async (): Promise<Response> => checkPassing(await this.#authorized(request));
    return this.#web.persist(`Cannot reach ${this.shown}`, work);
  }

  /** Sends credentials only after a challenge: signed URLs fail with an Authorization header */
  async #authorized(request: WebRequest): Promise<Response> {
    const response = await this.#web.request(this.#url, { ...request, authorization: this.#authorization });
    const { username, password } = this.#opts;
    const isAsked = response.status === 401 && /^\s*basic\b/i.test(response.headers.get("www-authenticate") ?? "");
    if (!isAsked || this.#authorization !== undefined || username === undefined || password === undefined) return response;
    await this.#discard(response);
    this.#authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    return this.#web.request(this.#url, { ...request, authorization: this.#authorization });
  }

  async #discard(response: Response): Promise<void> {
    await response.body?.cancel();
  }

  #refused(status: number, verb: string): ForkdError {
    if (status === 404 || status === 410)
      return new ForkdError("NOT_FOUND", `${this.shown} does not exist.`, { hint: "Check the address." });
    const isLogin = status === 401 || status === 403;
    return new ForkdError("HUB_FAILED", `Cannot ${verb} ${this.shown}: its server answered ${status}.`, {
      ...(isLogin && { hint: "Give a login (FORKD_REGISTRY_USER, FORKD_REGISTRY_PASSWORD), or sign the address again." }),
    });
  }
}
