// Invalid requests generated from spec/openapi.json: each field with values that the schema forbids.

import { SchemaChecker, type Schema } from "../helpers/schema-checker.ts";
import { openapi } from "../helpers/spec-client.ts";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";

const checker = new SchemaChecker(openapi);

/** Names that must not become paths or be confused with other names */
export const NAME_TRICKS = [
  "..",
  ".",
  "a/b",
  "/etc/passwd",
  "../../etc/passwd",
  "..\\..",
  "%2e%2e",
  "a%2fb",
  "\0",
  "python\0",
  "a\nb",
  "a\r\nX: y",
  "x.tmp",
  ".hidden",
  "-dash",
  "a".repeat(65),
  "pythоn",
  "ｐython",
  "python​",
  " python",
  "python ",
  "pythön",
  "a b",
  "a;b",
  "$(id)",
  "`id`",
  "a'b",
  'a"b',
  "*",
  "con:aux",
  "\ud800",
];

const WRONG = [null, true, 0, -1, 1.5, 1e308, "", "x".repeat(70), "a\0b", [], [1], [""], {}, { a: 1 }, nested(500)];
const WRONG_TEXT: Record<string, string[]> = {
  integer: ["x", "-1", "1.5", "1e999", "9".repeat(30), "NaN", "true", "1;2"],
  name: NAME_TRICKS,
  enum: ["maybe", "TRUE", "2", "null"],
};

export type Bad = { what: string; value: Record<string, unknown> };

/** Bodies that differ from a valid one in one field */
export function badBodies(route: RouteName, good: Record<string, unknown>): Bad[] {
  const schema = bodySchema(route);
  const fields = Object.keys(propertiesOf(schema));
  const required = Object.keys(good).filter((field) => checker.problems(without(good, field), schema).length > 0);
  const changed = fields.flatMap((field) =>
    [...WRONG, ...namesFor(schema, field)].map((wrong) => ({ what: `${field} = ${show(wrong)}`, value: { ...good, [field]: wrong } })),
  );
  return [
    ...changed.filter(({ value }) => checker.problems(value, schema).length > 0 || isTemporary(value)),
    ...required.map((field) => ({ what: `without ${field}`, value: without(good, field) })),
    { what: "an unknown field", value: { ...good, surprise: 1 } },
    { what: "a constructor", value: { ...good, constructor: { prototype: {} } } },
  ];
}

/** Query strings with one invalid field */
export function badQueries(route: RouteName): string[] {
  const parameters = parametersOf(route).filter((parameter) => parameter.in === "query");
  const wrong = parameters.flatMap(({ name, schema }) => (WRONG_TEXT[kindOf(schema)] ?? []).map((text) => `${name}=${encode(text)}`));
  const repeated = parameters.filter(({ name }) => name !== "metadata").map(({ name }) => `${name}=1&${name}=1`);
  return [...wrong, ...repeated, "surprise=1", "__proto__=1"];
}

export function takesBody(route: RouteName): boolean {
  return operationNamed(route)["requestBody"] !== undefined && "application/json" in contentOf(route);
}

export function takesQuery(route: RouteName): boolean {
  return parametersOf(route).some((parameter) => parameter.in === "query");
}

/** Encodes text for a path; a lone surrogate has no UTF-8 encoding and is replaced */
export function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

type Parameter = { name: string; in: string; schema: Schema };

function parametersOf(route: RouteName): Parameter[] {
  return ((operationNamed(route)["parameters"] ?? []) as Schema[]).filter((parameter) => "name" in parameter) as unknown as Parameter[];
}

function operationNamed(route: RouteName): Schema {
  const found = Object.values(openapi.paths)
    .flatMap((methods) => Object.values(methods))
    .find(({ operationId }) => operationId === route);
  if (!found) throw new Error(`${route} is not in the document`);
  return found;
}

function contentOf(route: RouteName): Record<string, { schema: Schema }> {
  return (operationNamed(route)["requestBody"] as { content: Record<string, { schema: Schema }> }).content;
}

function bodySchema(route: RouteName): Schema {
  const schema = contentOf(route)["application/json"]?.schema;
  if (!schema) throw new Error(`${route} takes no JSON`);
  return resolved(schema);
}

/** For a choice, the fields of all alternatives */
function propertiesOf(schema: Schema): Record<string, Schema> {
  const choices = (schema["anyOf"] ?? [schema]) as Schema[];
  return Object.assign({}, ...choices.map((choice) => resolved(choice)["properties"])) as Record<string, Schema>;
}

function namesFor(schema: Schema, field: string): string[] {
  const own = propertiesOf(schema)[field];
  return own && kindOf(own) === "name" ? NAME_TRICKS : [];
}

function kindOf(schema: Schema): string {
  const choices = (schema["anyOf"] as Schema[] | undefined)?.map(kindOf) ?? [];
  if (schema["$ref"] === "#/components/schemas/Name" || choices.includes("name")) return "name";
  if (schema["enum"]) return "enum";
  return String(schema["type"]);
}

function resolved(schema: Schema): Schema {
  return typeof schema["$ref"] === "string" ? checker.resolve(schema["$ref"]) : schema;
}

/** Names ending in ".tmp" are forbidden, which the schema patterns do not express */
function isTemporary(value: Record<string, unknown>): boolean {
  return Object.values(value).some((item) => typeof item === "string" && item.endsWith(".tmp"));
}

function without(value: Record<string, unknown>, field: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([key]) => key !== field));
}

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "undefined").slice(0, 40);
}
