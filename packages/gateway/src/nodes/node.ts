// One node of the cluster: its address, its last report, and requests to it.

import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingHttpHeaders } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { isIP } from "node:net";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { IDENTITY_HEADER } from "@forkd/daemon/cluster/identity";
import type { Status } from "@forkd/daemon/api/daemon";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";
import type { Asker, Signer } from "./signer.ts";

/** Shorter than the node's own keep-alive time, so that no request meets a connection that the node is closing */
const FREE_SOCKET_MS = 30_000;
const MAX_SOCKETS = 1024;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const MAX_HEADER_BYTES = 64 * 1024;

export type Reply = { status: number; headers: IncomingHttpHeaders; body: unknown };

export type Sent = { method: string; path: string; headers: string[]; isUpgrade?: boolean; signal?: AbortSignal | undefined };

type Question = {
  as: Asker;
  body?: Buffer | undefined;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  timeoutMs?: number;
};

export type NodeAddress = {
  url: string;
  /** name that stays when the address changes; without it the address */
  machine?: string;
  /** name in the certificate, if it is not the host of the address */
  servername?: string;
  /** its machine takes nothing new, and its sandboxes go to other nodes */
  mustDrain?: boolean;
};

export class Node {
  readonly machine: string;
  mustDrain: boolean;
  /** code with which its ids begin; null: it has not answered yet */
  code: string | null = null;
  /** its last report; null: it does not answer */
  status: Status | null = null;
  /** when it last answered, and why it does not */
  lastSeenMs: number | null = null;
  problem: string | null = null;
  /** snapshots it has, by id, and ids by tag as it is stored: with its project, unless that is `default` */
  snapshots: ReadonlyMap<string, SnapshotInfo> = new Map();
  tags: ReadonlyMap<string, string> = new Map();
  /** ids of its images, and their names as they are stored */
  images: ReadonlySet<string> = new Set();
  /** snapshots it is receiving */
  readonly fetching = new Set<string>();
  /** children that were sent to it since its last report */
  sent = { count: 0, memoryMiB: 0 };
  readonly #signer: Signer;
  readonly #closed = new AbortController();
  #base: URL;
  #servername: string | undefined;
  #agent: HttpAgent;

  constructor(address: NodeAddress, signer: Signer) {
    this.machine = address.machine ?? address.url;
    this.mustDrain = address.mustDrain === true;
    this.#signer = signer;
    this.#base = new URL(address.url);
    this.#servername = address.servername;
    this.#agent = this.#newAgent();
  }

  get url(): string {
    return this.#base.origin;
  }

  /** Aborted when the node is no longer one of the cluster */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** The daemon of this machine has another address now; requests at the old one end by themselves */
  moveTo({ url, servername, mustDrain = false }: NodeAddress): void {
    this.#servername = servername;
    this.mustDrain = mustDrain;
    if (this.status && mustDrain) this.status = { ...this.status, cordoned: true };
    if (url === this.url) return;
    this.#base = new URL(url);
    this.#agent = this.#newAgent();
    this.status = null;
    this.problem = null;
  }

  get isUp(): boolean {
    return this.status !== null;
  }

  /** Code, or the address as long as it is not known */
  get label(): string {
    return this.code ?? this.url;
  }

  /** Starts a request, signed for its method and path; the caller sends the body */
  open({ method, path, headers, isUpgrade, signal }: Sent, as: Asker): ClientRequest {
    const send = this.#base.protocol === "https:" ? httpsRequest : httpRequest;
    const all = [...headers, IDENTITY_HEADER, this.#signer.sign(as, { method, url: path }, this)];
    if (!headers.some((name, at) => at % 2 === 0 && name.toLowerCase() === "host")) all.push("Host", this.#base.host);
    const host = this.#base.hostname.replace(/^\[|\]$/g, "");
    const outgoing = send({
      hostname: host,
      // without it the certificate would have to be for the Host header, which is the client's
      servername: this.#servername ?? (isIP(host) === 0 ? host : ""),
      port: this.#base.port,
      method,
      path,
      headers: all,
      // an upgraded connection is used once
      agent: isUpgrade ? false : this.#agent,
      maxHeaderSize: MAX_HEADER_BYTES,
      ...(signal ? { signal } : {}),
    });
    outgoing.setNoDelay(true);
    // the agent's time-out is for free sockets; an eval may take any time
    outgoing.setTimeout(0);
    return outgoing;
  }

  /** Whole answer of a small request. Throws NODE_UNREACHABLE */
  async ask(method: string, path: string, { as, body, headers = {}, signal, timeoutMs = 10_000 }: Question): Promise<Reply> {
    const late = AbortSignal.timeout(timeoutMs);
    const type = body === undefined ? [] : ["Content-Type", "application/json", "Content-Length", String(body.length)];
    const sent = [...Object.entries(headers).flat(), ...type];
    const outgoing = this.open({ method, path, headers: sent, signal: signal ? AbortSignal.any([signal, late]) : late }, as);
    try {
      return await new Promise<Reply>((resolve, reject) => {
        outgoing.once("error", reject);
        outgoing.once("response", (response) => {
          const pieces: Buffer[] = [];
          let length = 0;
          response.on("data", (piece: Buffer) => {
            length += piece.length;
            if (length > MAX_ANSWER_BYTES) outgoing.destroy(new Error("its answer is too large"));
            else pieces.push(piece);
          });
          response.once("error", reject);
          response.once("end", () => {
            const text = Buffer.concat(pieces);
            const isJson = response.headers["content-type"]?.startsWith("application/json") === true;
            const value = isJson ? (JSON.parse(text.toString()) as unknown) : text.toString();
            resolve({ status: response.statusCode ?? 502, headers: response.headers, body: value });
          });
        });
        outgoing.end(body);
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw this.unreachable(late.aborted ? new Error("it did not answer in time") : error);
    }
  }

  unreachable(error: unknown): ForkdError {
    return new ForkdError("NODE_UNREACHABLE", `Cannot reach node ${this.label}: ${messageOf(error).replace(/\.$/, "")}.`, {
      cause: error,
      details: { node: this.label },
    });
  }

  close(): void {
    this.#closed.abort();
    this.#agent.destroy();
  }

  #newAgent(): HttpAgent {
    const options = { keepAlive: true, maxSockets: MAX_SOCKETS, timeout: FREE_SOCKET_MS, scheduling: "lifo" as const };
    return this.#base.protocol === "https:" ? new HttpsAgent(options) : new HttpAgent(options);
  }
}
