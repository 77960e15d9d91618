// JSON Schema → TypeScript, for the subset that our schemas use. openapi-typescript covers all of OpenAPI, but needs
// the compiler API of TypeScript 5; this repository uses TypeScript 7.

import type { JsonObject } from "../../packages/daemon/src/api/json-schema.ts";

const PREFIX = "#/components/schemas/";

export type Schema = {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: { [name: string]: Schema };
  required?: string[];
  additionalProperties?: boolean | Schema;
  description?: string;
  default?: unknown;
};

/** One exported type per component */
export function printTypes(components: JsonObject): string {
  return Object.entries(components as { [name: string]: Schema })
    .map(([name, schema]) => `${comment(schema, "")}export type ${name} = ${typeOf(schema, "", (component) => component)};\n`)
    .join("\n");
}

/** `refer` returns the name of a component */
export function typeOf(schema: Schema, indent: string, refer: (component: string) => string): string {
  if (schema.$ref !== undefined) return refer(schema.$ref.slice(PREFIX.length));
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return union(schema.enum.map((value) => JSON.stringify(value)));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return union(choices.map((choice) => typeOf(choice, indent, refer)));
  if (Array.isArray(schema.type)) return union(schema.type.map((type) => typeOf({ ...schema, type }, indent, refer)));
  switch (schema.type) {
    case undefined:
      return "unknown";
    case "integer":
      return "number";
    case "string":
    case "number":
    case "boolean":
    case "null":
      return schema.type;
    case "array":
      return arrayOf(typeOf(schema.items ?? {}, indent, refer));
    case "object":
      return objectOf(schema, indent, refer);
    default:
      throw new Error(`No TypeScript for the JSON Schema type ${schema.type}.`);
  }
}

function objectOf(schema: Schema, indent: string, refer: (component: string) => string): string {
  const inner = `${indent}  `;
  const lines = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const type = typeOf(property, inner, refer);
    const isRequired = schema.required?.includes(name) === true;
    return `${comment(property, inner)}${inner}${name}${isRequired ? "" : "?"}: ${isRequired ? type : union([type, "undefined"])};\n`;
  });
  const rest = schema.additionalProperties;
  if (typeof rest === "object") lines.push(`${inner}[key: string]: ${typeOf(rest, inner, refer)};\n`);
  return lines.length === 0 ? "Record<string, never>" : `{\n${lines.join("")}${indent}}`;
}

function arrayOf(item: string): string {
  return /^[\w.]+$/.test(item) ? `${item}[]` : `Array<${item}>`;
}

function union(types: string[]): string {
  if (types.includes("unknown")) return "unknown";
  return [...new Set(types)].join(" | ");
}

function comment(schema: Schema, indent: string): string {
  const preset = schema.default === undefined ? "" : `@default ${JSON.stringify(schema.default)}`;
  const text = [schema.description ?? "", preset].filter(Boolean).join(" ");
  return text === "" ? "" : `${indent}/** ${text.replaceAll("*/", "* /")} */\n`;
}
