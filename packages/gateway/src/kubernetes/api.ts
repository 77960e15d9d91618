// The Kubernetes API as the gateway uses it: requests with a time limit, caches of lists, and the meaning of failures.

import { request } from "node:https";
import { text } from "node:stream/consumers";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { Cache, type Followed } from "./cache.ts";

import type { KubeConfig } from "@kubernetes/client-node";

/** An API server without its etcd answers after a minute; a client of the gateway does not wait that long */
const REQUEST_MS = 5000;
/** Objects are small; the limit of etcd is 1.5 MiB for each */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

export type Verb = "GET" | "POST" | "PUT" | "DELETE";
/** Only answers that mean something to the caller: success, absence, conflict */
export type Answer<T> = { status: "ok"; body: T } | { status: "missing" } | { status: "conflict" };

export class KubernetesApi {
  readonly namespace: string;
  readonly #config: KubeConfig;
  readonly #server: string;

  private constructor(config: KubeConfig, server: string, namespace: string) {
    this.#config = config;
    this.#server = server;
    this.namespace = namespace;
  }

  /** Finds the API server as kubectl does: KUBECONFIG, ~/.kube/config, or the pod's service account */
  static async connect(): Promise<KubernetesApi> {
    const { KubeConfig: Config } = await import("@kubernetes/client-node");
    const config = new Config();
    try {
      config.loadFromDefault();
    } catch (error) {
      throw new ForkdError("BAD_CONFIG", `The kubeconfig cannot be used: ${messageOf(error)}.`, { cause: error });
    }
    const server = config.getCurrentCluster()?.server;
    if (server?.startsWith("https://") !== true)
      throw new ForkdError(
        "BAD_CONFIG",
        "There is no Kubernetes cluster with https: neither a kubeconfig nor a service account names one.",
        {
          hint: "Set KUBECONFIG, or run the gateway in a pod with a service account.",
        },
      );
    const context = config.getContextObject(config.getCurrentContext());
    return new KubernetesApi(config, server, context?.namespace ?? "default");
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
      throw unavailable(late.aborted ? `it gave no answer within ${REQUEST_MS / 1000} s` : messageOf(error), error);
    }
    if (answer.status === 404) return { status: "missing" };
    if (answer.status === 409) return { status: "conflict" };
    if (answer.status < 200 || answer.status > 299) throw unavailable(`it answered ${answer.status}: ${reasonIn(answer.text)}`);
    return { status: "ok", body: JSON.parse(answer.text) as T };
  }

  /** A list that follows its changes, and stays readable while the API server is away */
  async cache<T extends object>(path: string, opts: { labels?: string; fields?: string } = {}): Promise<Cache<T>> {
    const { ListWatch, Watch } = await import("@kubernetes/client-node");
    const query = new URLSearchParams();
    if (opts.labels !== undefined) query.set("labelSelector", opts.labels);
    if (opts.fields !== undefined) query.set("fieldSelector", opts.fields);
    type List = { metadata: { resourceVersion: string }; items: T[] };
    const list = async (): Promise<List> => {
      const answer = await this.request<List>("GET", `${path}?${query.toString()}`);
      if (answer.status !== "ok") throw unavailable(`it has no ${path}`);
      return answer.body;
    };
    // The client's type of an object has Dates, which only its own lists contain.
    const informer = new ListWatch(path, new Watch(this.#config), list, false, opts.labels, opts.fields);
    return new Cache<T>(informer as unknown as Followed<T>);
  }

  async #send(verb: Verb, path: string, body: object | undefined, signal: AbortSignal): Promise<{ status: number; text: string }> {
    const options = { method: verb, signal, headers: { accept: "application/json", "content-type": "application/json" } };
    await this.#config.applyToHTTPSOptions(options);
    return new Promise((resolve, reject) => {
      const sent = request(`${this.#server}${path}`, options, (incoming) => {
        let size = 0;
        incoming.on("data", (chunk: Buffer) => {
          size += chunk.length;
          if (size > MAX_BODY_BYTES) incoming.destroy(new Error(`its answer is larger than ${MAX_BODY_BYTES} bytes`));
        });
        text(incoming).then((all) => resolve({ status: incoming.statusCode ?? 0, text: all }), reject);
      });
      sent.on("error", reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

function unavailable(why: string, cause?: unknown): ForkdError {
  return new ForkdError("CLUSTER_STATE_UNAVAILABLE", `The Kubernetes API server cannot be used: ${why}.`, { cause });
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
