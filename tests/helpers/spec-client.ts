// A plain HTTP client that validates every answer against spec/openapi.json.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { request, type IncomingHttpHeaders, type IncomingMessage, type RequestOptions } from "node:http";
import { resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import type { Duplex } from "node:stream";
import { SchemaChecker, type Schema } from "./schema-checker.ts";

const FILE = resolve(import.meta.dirname, "..", "..", "spec", "openapi.json");
export const openapi = JSON.parse(readFileSync(FILE, "utf8")) as { paths: Record<string, Record<string, Operation>> } & Schema;

type Content = Record<string, { schema?: Schema }>;
type Response = { $ref?: string; content?: Content };
type Operation = { operationId: string; "x-methods"?: "all"; responses: Record<string, Response>; requestBody?: { content: Content } };

export type Problem = { error: string; code: string; hint: string; request_id: string; details?: Record<string, unknown> };
type Refusal = { code: string; message: string; status: number; details: unknown };
export type Reply = { status: number; headers: IncomingHttpHeaders; body: unknown; bytes: Buffer };
export type Target = { socketPath: string } | { host: string; port: number };
export type SendOptions = {
  json?: unknown;
  bytes?: Uint8Array;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
};

const checker = new SchemaChecker(openapi);
const OPERATIONS = Object.entries(openapi.paths).flatMap(([template, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    method: operation["x-methods"] === "all" ? undefined : method.toUpperCase(),
    pattern: new RegExp(
      `^${template
        .replaceAll(".", "\\.")
        .replace(/\{path\}$/, ".*")
        .replaceAll(/\{\w+\}/g, "[^/]+")}/?$`,
    ),
    operation,
  })),
);

export class SpecClient {
  readonly #target: Target;
  readonly #headers: Record<string, string>;

  constructor(target: Target, opts: { token?: string } = {}) {
    this.#target = target;
    this.#headers = { host: "localhost", ...(opts.token === undefined ? {} : { authorization: `Bearer ${opts.token}` }) };
  }

  async send(method: string, path: string, opts: SendOptions = {}): Promise<Reply> {
    const response = await this.open(method, path, opts);
    const bytes = await buffer(response);
    const reply = { status: response.statusCode ?? 0, headers: response.headers, body: parsed(response, bytes), bytes };
    checkReply(method, path, opts, reply);
    return reply;
  }

  /** Expects an error answer and returns its problem */
  async problem(method: string, path: string, opts: SendOptions = {}): Promise<Problem & { status: number }> {
    const { status, body } = await this.send(method, path, opts);
    assert.ok(status >= 400, `${method} ${path} succeeded with ${status}: ${JSON.stringify(body)}`);
    return { ...(body as Problem), status };
  }

  /** Upgrades a connection, sends the bytes and returns the bytes received, or the problem */
  async upgrade(path: string, opts: { upgrade: string; bytes: Uint8Array }): Promise<{ value: Buffer; status: number } | Refusal> {
    const headers = { ...this.#headers, connection: "Upgrade", upgrade: opts.upgrade };
    const options: RequestOptions & { allowHalfOpen: true } = { ...this.#target, path, headers, agent: false, allowHalfOpen: true };
    const sent = request(options).end();
    const answer = await new Promise<{ response: IncomingMessage; socket?: Duplex; head?: Buffer }>((resolve, reject) => {
      sent.once("error", reject);
      sent.once("upgrade", (response: IncomingMessage, socket: Duplex, head: Buffer) => resolve({ response, socket, head }));
      sent.once("response", (response) => resolve({ response }));
    });
    const { response, socket, head } = answer;
    const status = response.statusCode ?? 0;
    if (socket) {
      if (head && head.length > 0) socket.unshift(head);
      socket.end(opts.bytes);
      return { value: await buffer(socket), status };
    }
    const bytes = await buffer(response);
    const body = parsed(response, bytes);
    checkReply("GET", path, {}, { status, headers: response.headers, body, bytes });
    const { code, error: message, details } = body as Problem;
    return { code, message, details, status };
  }

  /** Server-sent events, each validated, until the caller stops iterating */
  async *events(query: string, headers: Record<string, string> = {}): AsyncGenerator<Record<string, unknown>> {
    const response = await this.open("GET", `/v1/events${query}`, { headers });
    if (response.statusCode !== 200) assert.fail(`events: ${response.statusCode} ${(await buffer(response)).toString()}`);
    for await (const event of this.eventsIn(response, "Event")) yield event;
  }

  /** Events of a response, each validated against the named schema */
  async *eventsIn(response: IncomingMessage, schema: string): AsyncGenerator<Record<string, unknown>> {
    assert.equal(response.headers["content-type"], "text/event-stream");
    let text = "";
    try {
      for await (const piece of response) {
        text += String(piece);
        for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
          const event = eventOf(text.slice(0, end), schema);
          text = text.slice(end + 2);
          if (event) yield event;
        }
      }
    } finally {
      response.destroy();
    }
  }

  open(method: string, path: string, opts: SendOptions = {}): Promise<IncomingMessage> {
    const body = opts.json === undefined ? opts.bytes : JSON.stringify(opts.json);
    const type = opts.json === undefined ? "application/octet-stream" : "application/json";
    const headers = { ...this.#headers, ...(body === undefined ? {} : { "content-type": type }), ...opts.headers };
    return new Promise((done, reject) => {
      // One connection per request: a connection broken by one request must not affect the next
      const { signal } = opts;
      const sent = request({ ...this.#target, method, path, headers, agent: false, ...(signal ? { signal } : {}) }, done);
      sent.once("error", reject);
      sent.end(body);
    });
  }
}

/** Operation of the document that a request belongs to */
function operationOf(method: string, path: string): Operation | undefined {
  const [plain = ""] = path.split("?");
  return OPERATIONS.find((known) => (known.method ?? method) === method && known.pattern.test(plain))?.operation;
}

function checkReply(method: string, path: string, sent: SendOptions, reply: Reply): void {
  const where = `${method} ${path.slice(0, 200)} → ${reply.status}`;
  assert.match(String(reply.headers["x-request-id"] ?? ""), /^[A-Za-z0-9._-]{1,64}$/, `${where}: no X-Request-Id`);
  const operation = operationOf(method, path);
  const responses = operation?.responses ?? { "4XX": { $ref: "#/components/responses/Problem" } };
  const declared = responses[reply.status] ?? responses[`${Math.floor(reply.status / 100)}XX`];
  assert.ok(declared, `${where}: this status is not declared: ${reply.bytes.toString().slice(0, 500)}`);
  const { content } = declared.$ref ? (checker.resolve(declared.$ref) as Response) : declared;
  if (!content) {
    assert.equal(reply.bytes.length, 0, `${where}: there is a body`);
    return;
  }
  const type = String(reply.headers["content-type"]).split(";")[0] ?? "";
  if ("*/*" in content) return;
  assert.ok(type in content, `${where}: content type ${type} is not declared`);
  const schema = content[type]?.schema;
  const problems = schema ? valuesOf(type, reply).flatMap((value) => checker.problems(value, schema)) : [];
  assert.deepEqual(problems, [], `${where}: ${reply.bytes.toString().slice(0, 500)}`);
  const { request_id: requestId } = (reply.body ?? {}) as Partial<Problem>;
  if (requestId !== undefined) assert.equal(requestId, reply.headers["x-request-id"], where);
  // A request that the daemon accepts must be valid in the document
  const request = operation?.requestBody?.content["application/json"]?.schema;
  if (reply.status < 300 && request && sent.json !== undefined)
    assert.deepEqual(checker.problems(sent.json, request), [], `${where}: request`);
}

function valuesOf(type: string, { body, bytes }: Reply): unknown[] {
  if (type === "application/json") return [body];
  if (type === "application/x-ndjson") return linesOf(bytes);
  if (type === "text/event-stream") return eventsIn(bytes).map(({ data }) => data);
  return [bytes.toString()];
}

/** Parses a complete stream of server-sent events */
export function eventsIn(bytes: Buffer): { event: string; id: string; data: Record<string, unknown> }[] {
  const blocks = bytes.toString().split("\n\n");
  return blocks.flatMap((block) => {
    const fields = fieldsOf(block);
    const data = fields.get("data");
    if (data === undefined) return [];
    return [{ event: fields.get("event") ?? "", id: fields.get("id") ?? "", data: JSON.parse(data) as Record<string, unknown> }];
  });
}

function fieldsOf(block: string): Map<string, string> {
  return new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
}

export function linesOf(bytes: Buffer): unknown[] {
  return bytes
    .toString()
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as unknown);
}

function parsed(response: IncomingMessage, bytes: Buffer): unknown {
  if (response.headers["content-type"]?.startsWith("application/json") !== true) return undefined;
  return JSON.parse(bytes.toString("utf8")) as unknown;
}

function eventOf(text: string, schema: string): Record<string, unknown> | undefined {
  const fields = fieldsOf(text);
  const data = fields.get("data");
  if (data === undefined) return undefined;
  const event = JSON.parse(data) as Record<string, unknown>;
  assert.deepEqual(checker.problems(event, { $ref: `#/components/schemas/${schema}` }), []);
  const id = event["id"] === undefined ? undefined : `${event["id"] as number}`;
  assert.deepEqual([fields.get("id"), fields.get("event")], [id, event["type"]]);
  return event;
}
