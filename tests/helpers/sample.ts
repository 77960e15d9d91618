// The smallest valid object for a schema in spec/openapi.json. Tests add only the fields they check.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";

type Schema = {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: { [name: string]: Schema };
  required?: string[];
  minimum?: number;
};

const PREFIX = "#/components/schemas/";
const FILE = resolve(import.meta.dirname, "..", "..", "spec", "openapi.json");
const { components, paths } = JSON.parse(readFileSync(FILE, "utf8")) as {
  components: { schemas: { [name: string]: Schema } };
  paths: { [path: string]: { [method: string]: Operation } };
};

type Operation = { operationId: string; responses: { [status: string]: { content?: { [media: string]: { schema?: Schema } } } } };

export function sampleOf(component: string): object {
  const schema = components.schemas[component];
  if (schema === undefined) throw new Error(`${component} is not in spec/openapi.json`);
  return valueOf(schema) as object;
}

/** Status and body of the smallest answer of each route; the body is undefined unless the route returns JSON */
export function answers(): { [route: string]: readonly [number, unknown] } {
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  return Object.fromEntries(operations.map(({ operationId, responses }) => [operationId, answerOf(responses)]));
}

function answerOf(responses: Operation["responses"]): readonly [number, unknown] {
  const all = Object.entries(responses).map(([status, { content }]) => [Number(status), content?.["application/json"]?.schema] as const);
  const json = all.find(([status, schema]) => status < 300 && schema !== undefined);
  return json?.[1] === undefined ? [all[0]?.[0] ?? 200, undefined] : [json[0], valueOf(json[1])];
}

export function valueOf(schema: Schema): unknown {
  if (schema.$ref !== undefined) return sampleOf(schema.$ref.slice(PREFIX.length));
  if ("const" in schema) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  const choices = schema.anyOf ?? schema.oneOf;
  const types = [schema.type].flat();
  if (types.includes("null") || choices?.some(({ type }) => type === "null") === true) return null;
  if (choices?.[0] !== undefined) return valueOf(choices[0]);
  switch (types[0]) {
    case "object":
      return Object.fromEntries((schema.required ?? []).map((name) => [name, valueOf(schema.properties?.[name] ?? {})]));
    case "array":
      return [];
    case "string":
      return "";
    case "boolean":
      return false;
    case "integer":
    case "number":
      return Math.max(schema.minimum ?? 0, 0);
    default:
      return null;
  }
}
