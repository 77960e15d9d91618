// The Kubernetes API as the gateway uses it: requests with a time limit, watches, and the meaning of failures.

import { Agent, request, type RequestOptions } from "node:https";
import { text } from "node:stream/consumers";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { BearerToken, findAccess, type Access } from "./access.ts";
import { Cache, type Change, type KubernetesObject, type Source } from "./cache.ts";

import type { IncomingMessage } from "node:http";

/** An API server without its etcd answers after a minute; a client of the gateway does not wait that long */
const REQUEST_MS = 5000;
/** Objects are small; the limit of etcd is 1.5 MiB for each */
const MAX_BODY_BYTES = 64 * 1024 * 1024;
/** The API server ends a watch after that time. It is opened again, so that one that is lost unnoticed is replaced */
const WATCH_SECS = 240;
const WATCH_MARGIN_MS = 30_000;
/** Without an answer the connection of a watch counts as lost 10 seconds later */
const KEEPALIVE_MS = 15_000;

export type Verb = "GET" | "POST" | "PUT" | "DELETE";
/** Only answers that mean something to the caller: success, absence, conflict */
export type Answer<T> = { status: "ok"; body: T } | { status: "missing" } | { status: "conflict" };

export class KubernetesApi implements Disposable {
  readonly namespace: string;
  readonly #access: Access;
  readonly #token: BearerToken;
  readonly #agent: Agent;

  constructor(access: Access) {
    this.#access = access;
    this.#token = new BearerToken(access.token);
    this.#agent = new Agent({ ...access.tls, keepAlive: true, keepAliveMsecs: KEEPALIVE_MS });
    this.namespace = access.namespace;
  }

  static async connect(): Promise<KubernetesApi> {
    return new KubernetesApi(await findAccess());
  }

  /** Path of a list in this namespace; `group` as in `apps/v1`, or `v1` for the core group */
  path(group: string, resource: string): string {
    return `${group === "v1" ? "/api" : "/apis"}/${group}/namespaces/${this.namespace}/${resource}`;
  }

  /** Throws CLUSTER_STATE_UNAVAILABLE if the API server gives no useful answer */
  async request<T>(verb: Verb, path: string, body?: object, opts: { signal?: AbortSignal } = {}): Promise<Answer<T>> {
    const late = AbortSignal.timeout(REQUEST_MS);
    const signal = opts.signal ? AbortSignal.any([opts.signal, late]) : late;
    let answer: { status: number; text: string };
    try {
      answer = await this.#send(verb, path, body, signal);
    } catch (error) {
      const why = late.aborted ? `it gave no answer within ${REQUEST_MS / 1000} s` : messageOf(error);
      throw unavailable(verb === "GET" || !isConnected(error) ? why : `${why}; the change may have been made`, error);
    }
    if (answer.status === 404) return { status: "missing" };
    if (answer.status === 409) return { status: "conflict" };
    if (answer.status < 200 || answer.status > 299) throw unavailable(`it answered ${answer.status}: ${reasonIn(answer.text)}`);
    return { status: "ok", body: objectIn(answer.text) as T };
  }

  /** A list that follows its changes, and stays readable while the API server is away */
  cache<T extends KubernetesObject>(path: string, opts: { labels?: string; fields?: string } = {}): Cache<T> {
    const query = new URLSearchParams();
    if (opts.labels !== undefined) query.set("labelSelector", opts.labels);
    if (opts.fields !== undefined) query.set("fieldSelector", opts.fields);
    const source: Source<T> = {
      list: async (signal) => {
        const answer = await this.request<{ metadata: { resourceVersion: string }; items: T[] }>(
          "GET",
          `${path}?${query.toString()}`,
          undefined,
          { signal },
        );
        if (answer.status !== "ok") throw unavailable(`it has no ${path}`);
        return { version: answer.body.metadata.resourceVersion, items: answer.body.items };
      },
      watch: (version, signal) => {
        const more = { watch: "true", allowWatchBookmarks: "true", resourceVersion: version, timeoutSeconds: String(WATCH_SECS) };
        return this.#watch<T>(`${path}?${new URLSearchParams({ ...Object.fromEntries(query), ...more }).toString()}`, signal);
      },
    };
    return new Cache<T>(source);
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  /** One change per line, until the API server or the signal ends it */
  async *#watch<T>(path: string, given: AbortSignal): AsyncGenerator<Change<T>> {
    const signal = AbortSignal.any([given, AbortSignal.timeout(WATCH_SECS * 1000 + WATCH_MARGIN_MS)]);
    const incoming = await this.#open("GET", path, undefined, signal);
    if (incoming.statusCode !== 200) throw unavailable(`it answered ${incoming.statusCode}: ${reasonIn(await text(incoming))}`);
    // a piece may end within a character, which `setEncoding` keeps for the next one
    incoming.setEncoding("utf8");
    let rest = "";
    for await (const piece of incoming as AsyncIterable<string>) {
      const lines = (rest + piece).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > MAX_BODY_BYTES) throw unavailable(`a change in a watch is larger than ${MAX_BODY_BYTES} bytes`);
      for (const line of lines) if (line !== "") yield JSON.parse(line) as Change<T>;
    }
  }

  async #send(verb: Verb, path: string, body: object | undefined, signal: AbortSignal): Promise<{ status: number; text: string }> {
    const incoming = await this.#open(verb, path, body, signal);
    let size = 0;
    incoming.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_BODY_BYTES) incoming.destroy(new Error(`its answer is larger than ${MAX_BODY_BYTES} bytes`));
    });
    return { status: incoming.statusCode ?? 0, text: await text(incoming) };
  }

  /** @param isAgain with a token that was read after a refusal */
  async #open(verb: Verb, path: string, body: object | undefined, signal: AbortSignal, isAgain = false): Promise<IncomingMessage> {
    const token = await this.#token.get();
    const sent = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const options: RequestOptions = {
      method: verb,
      agent: this.#agent,
      signal,
      headers: {
        accept: "application/json",
        ...(sent ? { "content-type": "application/json", "content-length": sent.length } : {}),
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      },
    };
    const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = request(`${this.#access.server}${path}`, options, resolve);
      outgoing.on("socket", (socket) => socket.setKeepAlive(true, KEEPALIVE_MS));
      outgoing.on("error", reject);
      outgoing.end(sent);
    });
    if (incoming.statusCode !== 401 || isAgain || !this.#token.forget()) return incoming;
    incoming.resume();
    return this.#open(verb, path, body, signal, true);
  }
}

function unavailable(why: string, cause?: unknown): ForkdError {
  return new ForkdError("CLUSTER_STATE_UNAVAILABLE", `The Kubernetes API server cannot be used: ${why}.`, { cause });
}

function objectIn(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw unavailable(`its answer is no JSON: ${messageOf(error)}`, error);
  }
}

/** Whether the request may have arrived: the failures of a connection that was never there are known */
function isConnected(error: unknown): boolean {
  const { code, syscall } = (error ?? {}) as { code?: unknown; syscall?: unknown };
  return syscall !== "connect" && syscall !== "getaddrinfo" && !(typeof code === "string" && code.startsWith("ERR_TLS"));
}

/** The message of a Status object; other bodies come from proxies in between, and may be long */
function reasonIn(body: string): string {
  try {
    const { message } = JSON.parse(body) as { message?: unknown };
    if (typeof message === "string") return message;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return body.slice(0, 200);
}
