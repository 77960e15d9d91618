// Methods of the SDKs' low-level clients as data, from the route table and api/clients.ts.

import { clients, type ClientMethod } from "../../packages/daemon/src/api/clients.ts";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { JsonObject } from "../../packages/daemon/src/api/json-schema.ts";
import type { Route } from "../../packages/daemon/src/api/route.ts";
import type { Schema } from "./types.ts";

export const PREFIX = "#/components/schemas/";

/** Values of a flag in a query */
const FLAG = ["", "0", "1", "false", "true"];

export type Field = {
  /** Name on the wire and name of the argument, both in snake_case */
  wire: string;
  arg: string;
  place: "path" | "query" | "body";
  schema: Schema;
  isRequired: boolean;
  isFlag: boolean;
};

export type Answer =
  | { kind: "json"; schema: Schema; field: string | undefined }
  | { kind: "page"; schema: Schema }
  | { kind: "empty" | "text" | "bytes" };

export type Method = {
  route: RouteName;
  verb: Exclude<Route["method"], "ALL">;
  /** With `{}` for each parameter */
  path: string;
  /** In camelCase */
  name: string;
  scope: Route["scope"];
  summary: string;
  client: ClientMethod;
  /** Path parameters and required fields, in order */
  args: Field[];
  options: Field[];
  /** Name of the argument with the request body */
  upload: string | undefined;
  /** Component of the body */
  body: string | undefined;
  answer: Answer;
  /** Statuses outside 2xx that are not errors */
  answers: number[];
  hasProgress: boolean;
};

type Operation = {
  parameters?: Array<{ name: string; in: "path" | "query"; required?: boolean; description?: string; schema: Schema; $ref?: string }>;
  requestBody?: { content: { [media: string]: { schema?: Schema } } };
  responses: { [status: string]: { content?: { [media: string]: { schema?: Schema } } } };
};

/** In the order of the route table */
export function methodsOf(openapi: JsonObject): Method[] {
  const components = (openapi["components"] as unknown as { schemas: { [name: string]: Schema } }).schemas;
  return (Object.entries(routes) as [RouteName, Route][]).flatMap(([name, route]) => {
    const given = clients[name] ?? {};
    return (Array.isArray(given) ? given : [given]).map((client: ClientMethod) =>
      methodOf(name, route, client, operationOf(openapi, route), components),
    );
  });
}

function methodOf(
  route: RouteName,
  { method, path, scope, summary, body, progress, responses }: Route,
  client: ClientMethod,
  operation: Operation,
  components: { [name: string]: Schema },
): Method {
  const fields = fieldsOf(route, operation, components).filter((field) => client.omit?.includes(field.wire) !== true);
  const args = fields
    .filter((field) => field.isRequired)
    .map((field) => ({ ...field, arg: client.args?.[field.wire] ?? usualName(field, path) }));
  const options = fields
    .filter((field) => !field.isRequired)
    .map((field) => ({ ...field, schema: { ...field.schema, ...describedAs(field, client) } }));
  const taken = [...args, ...options].map((field) => field.arg);
  const twice = taken.find((arg, at) => taken.indexOf(arg) !== at || arg === "path");
  if (twice !== undefined) throw new Error(`${route}: give the argument ${twice} another name in api/clients.ts.`);
  const places = new Set(options.map((field) => field.place));
  if (places.size > 1) throw new Error(`${route} has options in its query and in its body: omit some of them in api/clients.ts.`);
  const bodyRef = operation.requestBody?.content["application/json"]?.schema?.$ref;
  if (typeof body === "object" && bodyRef === undefined) throw new Error(`${route}: its body needs an id in api/.`);
  return {
    route,
    verb: method === "ALL" ? "GET" : method,
    path: path.replaceAll(/:\w+/g, "{}"),
    name: client.name ?? route,
    scope,
    summary: client.summary ?? summary,
    client,
    args,
    options,
    upload: body === "bytes" ? (client.args?.["body"] ?? "content") : undefined,
    body: bodyRef?.slice(PREFIX.length),
    answer: answerOf(operation, client, options),
    answers: Object.keys(responses)
      .map(Number)
      .filter((status) => status >= 300),
    hasProgress: progress === true,
  };
}

function operationOf(openapi: JsonObject, route: Route): Operation {
  const path = route.path.replaceAll(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}");
  const method = route.method === "ALL" ? "get" : route.method.toLowerCase();
  const paths = openapi["paths"] as unknown as { [path: string]: { [method: string]: Operation } };
  const operation = paths[path]?.[method];
  if (operation === undefined) throw new Error(`${route.method} ${route.path} is not in the OpenAPI document.`);
  return operation;
}

function fieldsOf(route: RouteName, operation: Operation, components: { [name: string]: Schema }): Field[] {
  const parameters = (operation.parameters ?? [])
    .filter((parameter) => parameter.$ref === undefined && !(route === "proxyRequest" && parameter.name === "path"))
    .map((parameter): Field => {
      const schema = parameter.description === undefined ? parameter.schema : { ...parameter.schema, description: parameter.description };
      const isFlag = schema.enum?.length === FLAG.length && schema.enum.every((value) => FLAG.includes(value as string));
      return {
        wire: parameter.name,
        arg: parameter.name,
        place: parameter.in,
        schema: isFlag ? without(schema, "enum", "boolean") : schema,
        isRequired: parameter.required === true,
        isFlag,
      };
    });
  const described = (field: Field): Field => ({ ...field, schema: withDescription(field.schema, components) });
  const body = resolve(operation.requestBody?.content["application/json"]?.schema ?? {}, components);
  return [...parameters, ...bodyFields(body)].map(described);
}

/** Adds the description of the field's type if the field has none */
function withDescription(schema: Schema, components: { [name: string]: Schema }): Schema {
  const { $ref } = schema.$ref === undefined ? (schema.anyOf?.[0] ?? {}) : schema;
  if (schema.description !== undefined || $ref === undefined) return schema;
  const { description } = resolve({ $ref }, components);
  return description === undefined ? schema : { ...schema, description };
}

/** Fields of a body. For a choice, the fields of all forms, all optional */
function bodyFields(body: Schema): Field[] {
  const forms = body.anyOf ?? body.oneOf ?? [body];
  const found = new Map<string, Field>();
  for (const form of forms) {
    for (const [wire, schema] of Object.entries(form.properties ?? {})) {
      const isRequired = forms.length === 1 && form.required?.includes(wire) === true;
      if (!found.has(wire)) found.set(wire, { wire, arg: wire, place: "body", schema, isRequired, isFlag: false });
    }
  }
  return [...found.values()];
}

function answerOf(operation: Operation, client: ClientMethod, options: Field[]): Answer {
  for (const [status, { content }] of Object.entries(operation.responses)) {
    if (!/^2\d\d$/.test(status) || (client.answer !== undefined && client.answer.status !== Number(status))) continue;
    if (content === undefined) return { kind: "empty" };
    const schema = content["application/json"]?.schema;
    if (schema !== undefined) {
      const isPage = options.some((field) => field.wire === "cursor");
      return isPage ? { kind: "page", schema: schema.items ?? {} } : { kind: "json", schema, field: client.answer?.field };
    }
    if ("text/plain" in content) return { kind: "text" };
    if (!("text/event-stream" in content) && !("application/x-ndjson" in content)) return { kind: "bytes" };
  }
  return { kind: "empty" };
}

/** Argument names that state the kind of id or path, for calls with keyword arguments */
function usualName(field: Field, path: string): string {
  if (field.place === "path" && field.wire === "id" && path.startsWith("/v1/sandboxes/")) return "sandbox_id";
  return field.wire === "path" ? "file_path" : field.wire;
}

/** Description of a field; the SDKs take lists where a query has text */
function describedAs({ wire, schema }: Field, client: ClientMethod): { description?: string } {
  if (wire === "cursor") return { description: "`next_cursor` of the page before" };
  if (client.takes?.[wire] === "pairs") return { description: "Only those that have all of these pairs" };
  if (client.lists?.[wire] === undefined || schema.description === undefined) return {};
  return { description: schema.description.replace(/^Comma-separated; w/, "W").replace(/, separated by commas$/, "") };
}

function without(schema: Schema, key: keyof Schema, type: string): Schema {
  const { [key]: _, ...rest } = schema;
  return { ...rest, type };
}

export function resolve(schema: Schema, components: { [name: string]: Schema }): Schema {
  if (schema.$ref === undefined) return schema;
  const found = components[schema.$ref.slice(PREFIX.length)];
  if (found === undefined) throw new Error(`${schema.$ref} is not in the OpenAPI document.`);
  return found;
}

export function camel(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export function pascal(name: string): string {
  return camel(`_${name}`);
}

/** Documentation of a method in both SDKs, as sentences */
export function sentencesOf({ summary, client, scope, hasProgress }: Method, timeout: string, key: string): string {
  const seconds = typeof client.seconds === "number" && client.seconds >= 600 ? client.seconds : undefined;
  return [
    summary,
    client.more,
    scope === "admin" || scope === "operator" ? `Needs the scope ${scope}` : undefined,
    client.key === "made" ? "Safe to repeat: the request carries an idempotency key" : undefined,
    client.key === "given" && client.repeatable === undefined ? `Not repeated after a failure unless \`${key}\` is given` : undefined,
    client.repeatable === false ? "Not repeated after a failure: the second answer would not name what the first call ended" : undefined,
    seconds === undefined ? undefined : `May take ${duration(seconds)} unless \`${timeout}\` is given`,
    hasProgress ? "Reports progress" : undefined,
  ]
    .filter((text) => text !== undefined)
    .map((text) => `${text.replace(/\.$/, "")}.`)
    .join(" ");
}

function duration(seconds: number): string {
  if (seconds === 3600) return "an hour";
  return seconds > 3600 ? `${seconds / 3600} hours` : `${seconds / 60} minutes`;
}
