// The OpenAPI document, from which clients are generated.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { buildOpenapi } from "../../src/api/openapi.ts";
import { routes } from "../../src/api/routes.ts";
import type { Route } from "../../src/api/route.ts";

type Operation = {
  operationId: string;
  parameters?: Array<{ name?: string; in?: string; required?: boolean; $ref?: string }>;
  requestBody?: { required: boolean; content: Record<string, unknown> };
  responses: Record<string, { content?: Record<string, { schema?: unknown }> }>;
  security: unknown[];
  "x-scope": string;
};

const root = resolve(import.meta.dirname, "../../../..");
const document = buildOpenapi();
const paths = document["paths"] as Record<string, Record<string, Operation>>;
const operations = Object.values(paths).flatMap((item) => Object.values(item));

function operation(name: string): Operation {
  const found = operations.find(({ operationId }) => operationId === name);
  assert.ok(found, name);
  return found;
}

/** Every object in the document */
function* objectsOf(value: unknown): Generator<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) return;
  if (!Array.isArray(value)) yield value as Record<string, unknown>;
  for (const item of Object.values(value)) yield* objectsOf(item);
}

test("every route is one operation with a unique name", () => {
  assert.deepEqual(operations.map(({ operationId }) => operationId).sort(), Object.keys(routes).sort());
  for (const [name, route] of Object.entries<Route>(routes)) {
    const path = route.path.replaceAll(/:(\w+)/g, "{$1}").replace("*", "{path}");
    const method = route.method === "ALL" ? "get" : route.method.toLowerCase();
    assert.equal(paths[path]?.[method]?.operationId, name);
    assert.equal(operation(name)["x-scope"], route.scope);
    assert.equal(operation(name).security.length, route.scope === "none" ? 0 : 1);
  }
});

test("every reference resolves", () => {
  let count = 0;
  for (const { $ref } of objectsOf(document)) {
    if (typeof $ref !== "string") continue;
    count++;
    const target = $ref
      .slice(2)
      .split("/")
      .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], document);
    assert.ok(typeof target === "object" && target !== null, $ref);
  }
  assert.ok(count > 100);
});

test("every part of a path is a required parameter", () => {
  for (const [path, item] of Object.entries(paths)) {
    const named = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
    for (const { operationId, parameters = [] } of Object.values(item)) {
      const declared = parameters.filter((parameter) => parameter.in === "path");
      assert.deepEqual(
        declared.map(({ name }) => name),
        named,
        operationId,
      );
      assert.ok(
        declared.every(({ required }) => required === true),
        operationId,
      );
    }
  }
});

test("the media types of bodies other than JSON", () => {
  const types = (name: string, status: string) => Object.keys(operation(name).responses[status]?.content ?? {});
  assert.deepEqual(types("getMetrics", "200"), ["text/plain"]);
  assert.deepEqual(types("readFile", "200"), ["application/octet-stream"]);
  assert.deepEqual(types("getEvents", "200"), ["text/event-stream"]);
  assert.deepEqual(types("deleteSandbox", "204"), []);
  assert.deepEqual(types("createSnapshot", "200"), ["application/x-ndjson"]);
  assert.deepEqual(types("createSnapshot", "201"), ["application/json"]);
  assert.deepEqual(Object.keys(operation("writeFile").requestBody?.content ?? {}), ["application/octet-stream"]);
});

test("requests are described by their input form, answers by their output form", () => {
  const { CreateSandboxes, Token } = (document["components"] as { schemas: Record<string, { required: string[] }> }).schemas;
  assert.deepEqual(CreateSandboxes?.required, ["snapshot_tag"]);
  assert.ok(Token?.required.includes("scope"));
  assert.equal(operation("collectGarbage").requestBody?.required, false);
  assert.equal(operation("evalCode").requestBody?.required, true);
});

test("a POST accepts an Idempotency-Key, and every operation lists its errors", () => {
  for (const { operationId, parameters = [], responses } of operations) {
    const hasKey = parameters.some(({ $ref }) => $ref === "#/components/parameters/IdempotencyKey");
    const route = (routes as Record<string, Route>)[operationId];
    assert.equal(hasKey, route?.method === "POST" && route.body !== "bytes", operationId);
    assert.ok("4XX" in responses && "5XX" in responses, operationId);
  }
});

test("it is reproducible, and the committed files match it", async () => {
  assert.equal(JSON.stringify(buildOpenapi()), JSON.stringify(document));
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, "scripts/gen.ts"), "--check"]);
  assert.equal(stdout, "generated: ok\n");
});
