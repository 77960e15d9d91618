// Requests to a node: the client's own, streamed, or one whose body the gateway has read.

import { ForkdError } from "@forkd/runtime/errors";
import { hopsOf, pairsOf } from "@forkd/daemon/dispatch/hop-headers";
import { respond } from "@forkd/daemon/dispatch/respond";
import { KEY_HEADER, withoutUiCookies } from "@forkd/daemon/dispatch/ui-session";
import { answered, forwardedOf, hasBody, isClosed, sendBody, type Answered } from "@forkd/daemon/dispatch/upstream";
import { IDENTITY_HEADER } from "@forkd/daemon/cluster/identity";
import { MOVED_HEADER } from "@forkd/daemon/dispatch/problem";
import { askerOf, type Cluster } from "./cluster.ts";
import { SentBody } from "./sent-body.ts";
import type { IncomingMessage } from "node:http";
import type { Problem } from "@forkd/daemon/api/common";
import type { Exchange } from "@forkd/daemon/dispatch/exchange";
import type { Node } from "../nodes/node.ts";

const REPEATABLE = new Set(["GET", "HEAD", "OPTIONS"]);
/** Headers that the gateway sets itself, or has handled */
const OWN = new Set([IDENTITY_HEADER, KEY_HEADER, "x-forkd-store", "x-request-id", "expect"]);
/** Where clients of the API have their token, which the gateway has checked */
const CREDENTIALS: ReadonlySet<string> = new Set(["authorization", "x-api-key", "x-forkd-token"]);
/** Sandbox and node */
const MOVED = /^(sb-[a-z2-7]{16}) ([a-z2-7]{4})$/;
const MAX_HOPS = 4;
const MAX_PROBLEM_BYTES = 256 * 1024;

export type Passing = {
  /** read by the gateway, instead of the client's body */
  body?: Buffer | undefined;
  /** path and query for the node; default: the client's */
  path?: string | undefined;
  /** whether a header must not reach the node; default: those with the token of an API client */
  drops?: ((name: string, value: string) => boolean) | undefined;
};

/** A node's refusal, which another node may not share */
export type Refusal = { status: number; problem: Problem; headers: Record<string, string> };

/** Streams the request to the node, and its answer to the client */
export async function pass(exchange: Exchange, cluster: Cluster, node: Node, opts: Passing = {}): Promise<void> {
  const answer = await send(exchange, cluster, node, opts);
  await relayAnswer(exchange, cluster, answer);
}

/** The same with a body that can be sent again: a refusal is returned instead of answered */
export async function attempt(exchange: Exchange, cluster: Cluster, node: Node, opts: Passing): Promise<Refusal | null> {
  const answer = await send(exchange, cluster, node, opts);
  const { response } = answer;
  const status = response.statusCode ?? 502;
  if (status < 400 || !isJson(response)) {
    await relayAnswer(exchange, cluster, answer);
    return null;
  }
  return { status, problem: await problemOf(response), headers: keptHeaders(response) };
}

/** Answers with a node's refusal */
export async function refuseWith(exchange: Exchange, { status, problem, headers }: Refusal): Promise<void> {
  await respond(exchange, { status, headers, body: problem });
}

async function relayAnswer(exchange: Exchange, cluster: Cluster, answer: Answered): Promise<void> {
  const headers = answerHeaders(answer.response.rawHeaders);
  await respond(exchange, forwardedOf(answer, headers, { requestId: exchange.id, stopping: cluster.stopping }));
}

/** A node from which the sandbox has moved refuses before it does anything, and the new one is asked */
async function send(exchange: Exchange, { places }: Cluster, node: Node, opts: Passing): Promise<Answered> {
  const { request } = exchange;
  const body = opts.body === undefined && request.upgraded === undefined && hasBody(request) ? new SentBody(request) : null;
  let to = node;
  for (let hops = 0; ; hops++) {
    const answer = await sendOnce(exchange, to, opts, body);
    const [, sandbox, code] = MOVED.exec(String(answer.response.headers[MOVED_HEADER])) ?? [];
    if (sandbox === undefined || code === undefined || hops === MAX_HOPS) {
      body?.release();
      return answer;
    }
    answer.response.resume();
    to = await places.follow(sandbox, code);
    if (body?.isKept === false)
      throw new ForkdError("BUSY", `Cannot send this to sandbox ${sandbox}: it moved to node ${code} meanwhile. Nothing was done.`, {
        details: { sandbox, node: code, retry_after_secs: 1 },
      });
  }
}

async function sendOnce(exchange: Exchange, node: Node, opts: Passing, body: SentBody | null): Promise<Answered> {
  const { request, method, signal } = exchange;
  const isUpgrade = request.upgraded !== undefined && opts.body === undefined;
  const path = opts.path ?? request.url ?? "/";
  const mayRepeat = !isUpgrade && opts.body === undefined && !hasBody(request) && REPEATABLE.has(method);
  const waiting = { isUpgrade, headMs: 0, late: () => new Error("late") };
  const start = (): ReturnType<Node["open"]> => {
    const outgoing = node.open({ method, path, headers: requestHeaders(exchange, opts, isUpgrade), isUpgrade, signal }, askerOf(exchange));
    if (opts.body !== undefined) outgoing.end(opts.body);
    else if (body) body.sendTo(outgoing);
    else sendBody(request, outgoing, isUpgrade);
    return outgoing;
  };
  const first = start();
  try {
    return await answered(first, waiting).catch(async (error: unknown) => {
      // the node closed the kept-alive connection while it was idle
      if (!mayRepeat || !first.reusedSocket || !isClosed(error)) throw error;
      return answered(start(), waiting);
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw node.unreachable(error);
  }
}

function requestHeaders(exchange: Exchange, { body, drops = isCredential }: Passing, isUpgrade: boolean): string[] {
  const { request } = exchange;
  const raw = request.rawHeaders;
  const hops = hopsOf(raw);
  const out: string[] = [];
  let isChunked = false;
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (key === "transfer-encoding") isChunked = body === undefined;
    if (key === "te" && /\btrailers\b/i.test(value)) out.push("TE", "trailers");
    if (hops.has(key) || OWN.has(key) || drops(key, value)) continue;
    if (key === "content-length" && body !== undefined) continue;
    // the session of a dashboard is the gateway's own
    const kept = key === "cookie" ? withoutUiCookies(value) : value;
    if (kept !== undefined) out.push(name, kept);
  }
  out.push("X-Request-Id", exchange.id);
  if (body !== undefined) out.push("Content-Length", String(body.length));
  if (body !== undefined && request.headers["content-type"] === undefined) out.push("Content-Type", "application/json");
  if (isChunked) out.push("Transfer-Encoding", "chunked");
  if (isUpgrade) out.push("Connection", "Upgrade", "Upgrade", request.headers.upgrade ?? "");
  else if (out.includes("TE")) out.push("Connection", "TE");
  return out;
}

function isCredential(name: string): boolean {
  return CREDENTIALS.has(name);
}

/** The gateway sets the id of the request itself, and allows origins itself */
function answerHeaders(raw: readonly string[]): string[] {
  const hops = hopsOf(raw);
  const out: string[] = [];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (key === "trailer") out.push("Trailer", value);
    if (hops.has(key) || key === "x-request-id") continue;
    out.push(name, value);
  }
  return out;
}

function isJson({ headers }: IncomingMessage): boolean {
  return headers["content-type"]?.startsWith("application/json") === true;
}

async function problemOf(response: IncomingMessage): Promise<Problem> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > MAX_PROBLEM_BYTES) throw new ForkdError("BAD_GATEWAY", "Cannot read the node's answer: it is too large.");
    pieces.push(piece);
  }
  return JSON.parse(Buffer.concat(pieces).toString()) as Problem;
}

function keptHeaders({ headers }: IncomingMessage): Record<string, string> {
  const names = ["retry-after", "allow", "www-authenticate", "x-forkd-error"];
  return Object.fromEntries(names.flatMap((name) => (typeof headers[name] === "string" ? [[name, headers[name]]] : [])));
}
