// The OpenAPI 3.1 document of the route table.

import * as z from "zod";
import manifest from "../../package.json" with { type: "json" };
import { problem } from "./common.ts";
import { progressLine } from "./daemon.ts";
import { Schemas, type Json, type JsonObject } from "./json-schema.ts";
import { routes } from "./routes.ts";
import type { Body, Route } from "./route.ts";

const DESCRIPTION = `fork() for virtual machines.

Every error is a Problem with a stable code. The Unix socket belongs to its owner and needs no token; over TCP every request
carries one. Fields may be added to answers at any time.`;

const BYTES = "application/octet-stream";

const REASONS: { [status: number]: string } = {
  200: "OK",
  201: "Created",
  101: "The connection changes its protocol",
  202: "Accepted: the work continues",
  204: "Done",
  207: "An outcome for each",
  503: "Not now",
};

const REST_OF_PATH: JsonObject = {
  name: "path",
  in: "path",
  required: true,
  description: "Any path and query, passed on as they are",
  schema: { type: "string" },
};

/** The same object for the same routes: no dates, components in order */
export function buildOpenapi(): JsonObject {
  const schemas = new Schemas();
  const problemSchema = schemas.of(problem, "output");
  const paths: { [path: string]: JsonObject } = {};
  for (const [name, route] of Object.entries<Route>(routes)) {
    const path = route.path.replaceAll(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}");
    // the document has no word for every method, so one stands for all
    const method = route.method === "ALL" ? "get" : route.method.toLowerCase();
    paths[path] = { ...paths[path], [method]: operation(name, route, schemas) };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "forkd",
      version: manifest.version,
      description: DESCRIPTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "http://127.0.0.1:8889" }],
    tags: [...new Set(Object.values<Route>(routes).map(tagOf))].sort().map((name) => ({ name })),
    paths,
    components: {
      headers: {
        NextCursor: { description: "The next page's `cursor`; missing on the last page", schema: { type: "string" } },
        RequestId: { description: "Names the request in the log; taken from the request's own X-Request-Id", schema: { type: "string" } },
      },
      parameters: {
        IdempotencyKey: {
          name: "Idempotency-Key",
          in: "header",
          description: "A request that is repeated with the same key is done once and gets the same answer",
          schema: { type: "string", minLength: 1, maxLength: 128 },
        },
        LastEventId: {
          name: "Last-Event-ID",
          in: "header",
          description: "Id of the last received event: the stream continues after it",
          schema: { type: "string" },
        },
      },
      responses: {
        Problem: { description: "What failed", headers: requestId(), content: { "application/json": { schema: problemSchema } } },
      },
      schemas: schemas.components(),
      securitySchemes: { bearer: { type: "http", scheme: "bearer" } },
    },
  };
}

/** The collection that a path is about, or "daemon" */
export function tagOf(route: Route): string {
  const part = route.path.split("/")[2]?.replace(/\..*/, "") ?? "";
  return ["images", "sandboxes", "snapshots", "tokens", "workspaces"].includes(part) ? part : "daemon";
}

function operation(name: string, route: Route, schemas: Schemas): JsonObject {
  const parameters: Json[] = [
    ...parametersOf(route.params, "path", schemas),
    ...(route.path.endsWith("*") ? [REST_OF_PATH] : []),
    ...parametersOf(route.query, "query", schemas),
    ...(route.method === "POST" && route.body !== "bytes" ? [{ $ref: "#/components/parameters/IdempotencyKey" }] : []),
    ...(route.method === "GET" && route.events ? [{ $ref: "#/components/parameters/LastEventId" }] : []),
  ];
  const isPaged = route.query instanceof z.ZodObject && "cursor" in route.query.shape;
  const responses: JsonObject = {};
  for (const [status, response] of Object.entries(route.responses)) {
    const content = contentOf(response, route, schemas);
    responses[status] = {
      description: response === "any" ? "What the server answers, with a status of its own" : (REASONS[Number(status)] ?? status),
      headers: { ...requestId(), ...(isPaged ? { "X-Next-Cursor": { $ref: "#/components/headers/NextCursor" } } : {}) },
      ...(content === undefined ? {} : { content }),
    };
  }
  if (route.progress === true) responses["200"] = progressResponse(route, schemas);
  const failure = { $ref: "#/components/responses/Problem" };
  return {
    operationId: name,
    summary: route.summary,
    tags: [tagOf(route)],
    security: route.scope === "none" ? [] : [{ bearer: [] }],
    "x-scope": route.scope,
    ...(route.progress === true ? { "x-progress": true } : {}),
    ...(route.method === "ALL" ? { "x-methods": "all" } : {}),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(route.body === undefined || route.method === "ALL" ? {} : { requestBody: requestBody(route.body, route, schemas) }),
    responses: { ...responses, "4XX": failure, "5XX": failure },
  };
}

function parametersOf(schema: z.ZodType | undefined, where: "path" | "query", schemas: Schemas): JsonObject[] {
  if (schema === undefined) return [];
  const { properties, required } = schemas.of(schema, "input") as { properties: { [name: string]: JsonObject }; required?: string[] };
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: where,
    ...(required?.includes(name) === true ? { required: true } : {}),
    ...(description === undefined ? {} : { description }),
    schema: rest,
  }));
}

function requestBody(body: z.ZodType | "bytes", route: Route, schemas: Schemas): JsonObject {
  if (body === "bytes") return { required: true, content: { [route.media ?? BYTES]: {} } };
  // A body of which nothing is required may be left out.
  const isRequired = !body.safeParse({}).success;
  return { required: isRequired, content: { "application/json": { schema: schemas.of(body, "input") } } };
}

function contentOf(response: z.ZodType | Body, route: Route, schemas: Schemas): JsonObject | undefined {
  if (response === "empty") return undefined;
  if (response === "text") return { "text/plain": { schema: { type: "string" } } };
  if (response === "bytes") return { [route.media ?? BYTES]: {} };
  if (response === "any") return { "*/*": {} };
  if (response === "upgrade") return undefined;
  if (response === "events") return { "text/event-stream": route.events ? { schema: schemas.of(route.events, "output") } : {} };
  return { "application/json": { schema: schemas.of(response, "output") } };
}

/** Lines go out before the outcome is known, so their own status says nothing: the last line does */
function progressResponse(route: Route, schemas: Schemas): JsonObject {
  const results = Object.values(route.responses).filter((response) => typeof response === "object");
  const line = (properties: { [name: string]: JsonObject }) => ({ type: "object", properties, required: Object.keys(properties) });
  const oneOf = [
    line({ progress: schemas.of(progressLine, "output") }),
    ...results.map((result) => line({ result: schemas.of(result, "output"), status: { type: "integer" } })),
    line({ error: schemas.of(problem, "output") }),
  ];
  return {
    description: "With Accept: application/x-ndjson: any number of progress, then the result or an error, each on a line",
    headers: requestId(),
    content: { "application/x-ndjson": { schema: { oneOf } } },
  };
}

function requestId(): JsonObject {
  return { "X-Request-Id": { $ref: "#/components/headers/RequestId" } };
}
