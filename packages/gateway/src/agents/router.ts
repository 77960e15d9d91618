// What clients of agent-sandbox ask a sandbox itself, as their router takes it: the sandbox is named by headers, and a
// token of the cluster says who asks.

import { posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ForkdError } from "@forkd/runtime/errors";
import { authenticate, bearerOf, inProject } from "@forkd/daemon/dispatch/auth";
import { boundaryOf, readParts } from "@forkd/daemon/e2b/envd/multipart";
import { readJson } from "@forkd/daemon/streams/body";
import { answerTo, Refused, type Caller, type Inner } from "./inner.ts";
import { isRecord } from "./objects.ts";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AuthFailures } from "@forkd/daemon/dispatch/auth-failures";
import type { Limits } from "@forkd/daemon/streams/limits";
import type { Tokens } from "@forkd/daemon/store/tokens";

/** Where relative paths begin, and commands run; it is made when it is needed */
const BASE = "/app";
const BUILT_IN = /^\/(execute|upload|download|list|exists)(?:\/([^?]*))?(?:\?.*)?$/;
const DEFAULT_TIMEOUT_SECS = 180;
const MAX_TIMEOUT_SECS = 24 * 3600;
const RUN = 'mkdir -p "$1" && cd "$1" && exec /bin/sh -c "$2"';
const MAX_ENTRIES = 10_000;
/** Headers of one connection, and what the gateway sets itself */
const OWN = new Set(["host", "connection", "keep-alive", "transfer-encoding", "upgrade", "authorization", "te", "trailer"]);

type Router = {
  inner: Inner;
  tokens: Pick<Tokens, "find">;
  failures: AuthFailures;
  projects: { get: (name: string) => { name: string } };
  limits: Limits;
};

type ExecResult = { stdout: string; stderr: string; exit_code: number; timed_out: boolean };
type Listed = { name: string; size: number; kind: string; mtime_ms: number };

export function isForSandbox(request: IncomingMessage): boolean {
  return request.headers["x-sandbox-id"] !== undefined;
}

/** Throws ForkdError or Refused before the answer has begun */
export async function serveSandbox(router: Router, request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
  const caller = callerOf(router, request);
  const sandbox = `/v1/sandboxes/${encodeURIComponent(String(request.headers["x-sandbox-id"]))}`;
  const asked = { router, request, response, signal, caller, sandbox };
  const [, action, rest = ""] = BUILT_IN.exec(request.url ?? "/") ?? [];
  if (action === undefined) await passToPort(asked);
  else if (action === "execute") await execute(asked);
  else if (action === "upload") await upload(asked);
  else if (action === "download") await download(asked, pathIn(rest));
  else if (action === "list") await list(asked, pathIn(rest));
  else await exists(asked, pathIn(rest));
}

type Asked = { router: Router; request: IncomingMessage; response: ServerResponse; signal: AbortSignal; caller: Caller; sandbox: string };

function callerOf({ tokens, failures, projects }: Router, request: IncomingMessage): Caller {
  const remote = request.socket.remoteAddress ?? "unknown";
  const identity = authenticate({ kind: "tcp", remote, token: bearerOf(request.headers.authorization) }, { tokens, failures });
  const namespace = request.headers["x-sandbox-namespace"] ?? "default";
  return { identity: inProject(identity, namespace, { projects, acrossProjects: false }), remote };
}

async function execute({ router, request, response, signal, caller, sandbox }: Asked): Promise<void> {
  needs(request, "POST");
  const body = await readJson(request, router.limits);
  const { command, timeout_seconds: given } = isRecord(body) ? body : {};
  if (typeof command !== "string") throw new ForkdError("BAD_REQUEST", "Cannot run this: command must be a text.");
  const seconds = typeof given === "number" ? given : Number(request.headers["x-sandbox-timeout"] ?? DEFAULT_TIMEOUT_SECS);
  const timeout = Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds, MAX_TIMEOUT_SECS) : DEFAULT_TIMEOUT_SECS;
  const exec = { args: ["/bin/sh", "-c", RUN, "sh", BASE, command], timeout_secs: timeout };
  const result = await router.inner.get<ExecResult>({ method: "POST", path: `${sandbox}/exec`, body: exec, signal }, caller);
  const { stdout, stderr, exit_code, timed_out } = result;
  sendJson(response, 200, { stdout, stderr, exit_code, timed_out });
}

/** Each file of the form, to the path that is its name */
async function upload({ router, request, response, signal, caller, sandbox }: Asked): Promise<void> {
  needs(request, "POST");
  const boundary = boundaryOf(request.headers["content-type"]);
  if (boundary === null) throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot read the upload: it is no multipart/form-data.");
  const written: string[] = [];
  for await (const { filename, content } of readParts(request, boundary)) {
    if (filename === undefined) continue;
    const path = withinBase(filename);
    const query = new URLSearchParams({ path, parents: "true" });
    const headers = { "content-type": "application/octet-stream" };
    const outgoing = router.inner.open({ method: "PUT", path: `${sandbox}/files?${query.toString()}`, headers, signal }, caller);
    const answer = answerTo(outgoing, () => undefined);
    // a refusal comes before all of the file is sent; it is the answer, not the closed connection
    const [sent, reply] = await Promise.allSettled([pipeline(Readable.from(content), outgoing), answer]);
    if (reply.status === "rejected") throw reply.reason;
    await finish(reply.value);
    if (sent.status === "rejected") throw sent.reason;
    written.push(path);
  }
  if (written.length === 0) throw new ForkdError("BAD_REQUEST", "Cannot upload this: the form has no file.");
  sendJson(response, 200, { message: `Uploaded ${written.join(", ")}.` });
}

async function download({ router, request, response, signal, caller, sandbox }: Asked, path: string): Promise<void> {
  needs(request, "GET");
  const query = new URLSearchParams({ path });
  const outgoing = router.inner.open({ method: "GET", path: `${sandbox}/files?${query.toString()}`, signal }, caller);
  const answer = await answerTo(outgoing, () => outgoing.end());
  if (answer.statusCode !== 200) {
    await finish(answer);
    return;
  }
  response.statusCode = 200;
  response.setHeader("content-type", "application/octet-stream");
  const length = answer.headers["content-length"];
  if (length !== undefined) response.setHeader("content-length", length);
  await pipeline(answer, response);
}

async function list({ router, request, response, signal, caller, sandbox }: Asked, path: string): Promise<void> {
  needs(request, "GET");
  const entries: Listed[] = [];
  const query = new URLSearchParams({ path, limit: String(MAX_ENTRIES) });
  for (;;) {
    const reply = await router.inner.ask({ method: "GET", path: `${sandbox}/files/list?${query.toString()}`, signal }, caller);
    if (reply.status !== 200) throw new Refused(reply);
    entries.push(...(reply.body as Listed[]));
    const next = reply.headers["x-next-cursor"];
    if (typeof next !== "string") break;
    query.set("cursor", next);
  }
  // clients know files and directories only
  const shown = entries.map(({ name, size, kind, mtime_ms }) => ({
    name,
    size,
    type: kind === "directory" ? kind : "file",
    mod_time: mtime_ms / 1000,
  }));
  sendJson(response, 200, shown);
}

async function exists({ router, request, response, signal, caller, sandbox }: Asked, path: string): Promise<void> {
  needs(request, "GET");
  const query = new URLSearchParams({ path, follow: "true" });
  const reply = await router.inner.ask({ method: "GET", path: `${sandbox}/files/stat?${query.toString()}`, signal }, caller);
  const isMissing = reply.status === 404 && new Refused(reply).code === "FILE_NOT_FOUND";
  if (reply.status !== 200 && !isMissing) throw new Refused(reply);
  sendJson(response, 200, { path, exists: !isMissing });
}

/** Any other path is for the server that listens on the port inside the sandbox */
async function passToPort({ router, request, response, signal, caller, sandbox }: Asked): Promise<void> {
  const port = String(request.headers["x-sandbox-port"] ?? "");
  if (!/^\d{1,5}$/.test(port)) throw new ForkdError("BAD_REQUEST", "Cannot route this: X-Sandbox-Port must be a port of the sandbox.");
  const headers = Object.fromEntries(
    Object.entries(request.headers).flatMap(([name, value]) =>
      OWN.has(name) || name.startsWith("x-sandbox-") || value === undefined
        ? []
        : [[name, Array.isArray(value) ? value.join(", ") : value]],
    ),
  );
  const path = `${sandbox}/proxy/${port}${request.url ?? "/"}`;
  const outgoing = router.inner.open({ method: request.method ?? "GET", path, headers, signal }, caller);
  const answered = answerTo(outgoing, () => undefined);
  const sent = pipeline(request, outgoing);
  sent.catch(() => undefined); // the answer, or its absence, says more
  const answer = await answered;
  const kept = Object.entries(answer.headers).filter(([name]) => !OWN.has(name));
  for (const [name, value] of kept) if (value !== undefined) response.setHeader(name, value);
  response.statusCode = answer.statusCode ?? 502;
  await pipeline(answer, response);
}

/** Reads the answer to its end. Throws Refused unless it is a success */
async function finish(answer: IncomingMessage): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of answer as AsyncIterable<Buffer>) pieces.push(piece);
  const status = answer.statusCode ?? 502;
  if (status < 300) return;
  const text = Buffer.concat(pieces).toString();
  const isJson = answer.headers["content-type"]?.startsWith("application/json") === true;
  throw new Refused({ status, body: isJson ? JSON.parse(text) : text });
}

function pathIn(escaped: string): string {
  try {
    return withinBase(decodeURIComponent(escaped));
  } catch (error) {
    if (error instanceof URIError) throw new ForkdError("BAD_REQUEST", "Cannot read the path: its escapes are malformed.");
    throw error;
  }
}

/** Relative to the base, also with a slash at the beginning: as upstream's runtime, which leads no path out of it */
function withinBase(path: string): string {
  const full = posix.join(BASE, path);
  if (full !== BASE && !full.startsWith(`${BASE}/`))
    throw new ForkdError("FORBIDDEN", `Cannot use this path: it leads out of ${BASE}.`, { hint: "" });
  if (full.includes("\0")) throw new ForkdError("BAD_REQUEST", "Cannot use this path: it has a NUL.");
  return full.length > 1 ? full.replace(/\/$/, "") : full;
}

function needs(request: IncomingMessage, method: string): void {
  if (request.method !== method)
    throw new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${request.method} this path: it takes ${method}.`, { details: { allow: [method] } });
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const bytes = JSON.stringify(body);
  response.writeHead(status, { "content-type": "application/json", "content-length": String(Buffer.byteLength(bytes)) }).end(bytes);
}
