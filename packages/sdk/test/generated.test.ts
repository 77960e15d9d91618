// Every generated method sends every field of its route under the field's own name, and returns the route's answer.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { buildOpenapi } from "../../daemon/src/api/openapi.ts";
import { camel, methodsOf, type Field, type Method } from "../../../scripts/gen/methods.ts";
import { valueOf } from "../../../tests/helpers/sample.ts";
import { Controller } from "../src/index.ts";

type Sent = { method: string; path: string; query: Record<string, string[]>; body: string };

const methods = methodsOf(buildOpenapi()).filter((method) => method.client.byHand !== true);

for (const method of methods) {
  test(`${method.name} sends all of ${method.route}`, async () => {
    const answer = answerOf(method);
    await using server = await Server.start(answer);
    const controller = new Controller({ url: server.url }) as unknown as Record<string, (...args: unknown[]) => unknown>;
    const fields = [...method.args, ...method.options];
    const opts = Object.fromEntries(method.options.filter(isOption(method)).map((field) => [camel(field.arg), given(method, field)]));
    const args = method.args.filter(isOption(method)).map((field) => given(method, field));
    if (method.client.body !== undefined) args.push(wholeBody(method));
    if (method.upload !== undefined) args.push("content");
    const result = controller[method.name]?.(...args, opts);
    const value =
      Symbol.asyncIterator in (result as object) ? (await Array.fromAsync(result as AsyncIterable<Uint8Array>)).length : await result;

    const { sent } = server;
    assert.equal(sent?.method, method.verb);
    assert.equal(sent.path, pathOf(method));
    const inQuery = fields.filter(({ place }) => place === "query");
    assert.deepEqual(sent.query, Object.fromEntries(inQuery.map((field) => [field.wire, [onWire(method, field)].flat().map(String)])));
    if (method.upload !== undefined) assert.equal(sent.body, "content");
    if (method.body !== undefined && method.client.forms === undefined) {
      const inBody = fields.filter(({ place }) => place === "body").map((field) => [field.wire, onWire(method, field)]);
      assert.deepEqual(JSON.parse(sent.body), { ...Object.fromEntries(inBody), ...method.client.fixed });
    }
    if (method.answer.kind === "json" && method.answer.field === undefined) assert.deepEqual(value, answer);
    if (method.answer.kind === "empty") assert.equal(value, undefined);
  });
}

/** A body that is one argument is not spread over arguments and options */
function isOption({ client }: Method): (field: Field) => boolean {
  return ({ place }) => client.body === undefined || place !== "body";
}

function wholeBody({ args, options }: Method): object {
  const fields = [...args, ...options].filter(({ place }) => place === "body");
  return Object.fromEntries(fields.map(({ wire, schema }) => [camel(wire), sample(schema)]));
}

function given({ client }: Method, { wire, schema }: Field): unknown {
  if (client.takes?.[wire] === "pairs") return { a: "b" };
  if (client.lists?.[wire] !== undefined) return ["one", "two"];
  const value = sample(schema);
  return isRecord(value) ? Object.fromEntries(Object.entries(value).map(([key, item]) => [camel(key), item])) : value;
}

function onWire({ client }: Method, { wire, schema, place }: Field): unknown {
  if (client.takes?.[wire] === "pairs") return ["a=b"];
  if (client.lists?.[wire] !== undefined) return place === "query" ? "one,two" : ["one", "two"];
  return sample(schema);
}

/** Not empty, not false and not null, so that nothing of it is left out of a request */
function sample(schema: Field["schema"]): unknown {
  const value = valueOf(schema);
  if (value === "") return "x";
  if (value === 0) return 1;
  if (value === false) return true;
  return value ?? 1;
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function pathOf(method: Method): string {
  const values = method.args.filter(({ place }) => place === "path").map((field) => String(given(method, field)));
  return method.path.replaceAll("{}", () => values.shift() ?? "");
}

function answerOf({ answer }: Method): unknown {
  if (answer.kind === "json") return valueOf(answer.schema);
  return answer.kind === "page" ? [] : undefined;
}

class Server implements AsyncDisposable {
  sent: Sent | undefined;
  url = "";
  readonly #server;

  private constructor(answer: unknown) {
    this.#server = createServer((request, response) => {
      void this.#read(request).then(() => response.end(answer === undefined ? "" : JSON.stringify(answer)));
    });
  }

  static async start(answer: unknown): Promise<Server> {
    const server = new Server(answer);
    server.#server.listen(0, "127.0.0.1");
    await once(server.#server, "listening");
    const address = server.#server.address();
    assert.ok(typeof address === "object" && address !== null);
    server.url = `http://127.0.0.1:${address.port}`;
    return server;
  }

  async #read(request: IncomingMessage): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://x");
    const query = Object.fromEntries([...new Set(searchParams.keys())].map((key) => [key, searchParams.getAll(key)]));
    this.sent = { method: request.method ?? "", path: decodeURIComponent(pathname), query, body: await text(request) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}
