// JSON Schema → Python: a TypedDict per object, an alias for other types. Works with Python 3.9 and later.

import type { JsonObject } from "../../packages/daemon/src/api/json-schema.ts";
import type { Schema } from "./types.ts";

const PREFIX = "#/components/schemas/";

/** Components whose names are taken by classes of the package → the name that the TypeScript SDK exports */
const RENAMED: { readonly [name: string]: string } = {
  CreatedImage: "CreatedImageInfo",
  Event: "ForkdEvent",
  Image: "ImageInfo",
  Key: "KeyInfo",
  Pack: "PackInfo",
  Sandbox: "SandboxInfo",
  Recipe: "RecipeInfo",
  Snapshot: "SnapshotInfo",
  Token: "TokenInfo",
  Workspace: "WorkspaceInfo",
};

/** Number of values from which a choice gets its own name */
const LONG_ENUM = 10;

/** Keywords that cannot be fields in a class body */
const KEYWORDS = new Set(["from", "import", "global", "in", "is", "class", "def", "pass", "return"]);

/** Output: aliases first, because Python evaluates them in order */
type Out = { aliases: string[]; classes: string[]; refer: (component: string) => string };

type Field = { name: string; type: string; comment: string; isRequired: boolean };

/** One class or alias per component; nested objects get a class named after their place */
export function printPythonTypes(components: JsonObject): string {
  const out: Out = { aliases: [], classes: [], refer: (component) => `"${nameOf(component)}"` };
  for (const [component, schema] of Object.entries(components as { [name: string]: Schema })) {
    const name = nameOf(component);
    if (isRecord(schema)) out.classes.push(classOf(schema, name, out));
    else out.aliases.push(`${comment(schema, "#: ")}${name} = ${typeOf(schema, name, out, true).replace(/^"(\w+)"$/, "$1")}\n`);
  }
  return `${HEAD}\n${out.aliases.join("\n")}\n\n${out.classes.join("\n\n")}`;
}

/** Type of an argument; `place` names the type if the schema is anonymous */
export function pythonType(schema: Schema, place: string, refer: (component: string) => string): string {
  return typeOf(schema, place, { aliases: [], classes: [], refer });
}

export function nameOf(component: string): string {
  return RENAMED[component] ?? component;
}

const HEAD = `from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union
`;

function isRecord(schema: Schema): boolean {
  return schema.type === "object" && Object.keys(schema.properties ?? {}).length > 0;
}

function classOf(schema: Schema, name: string, out: Out): string {
  const fields = Object.entries(schema.properties ?? {}).map(([key, property]): Field => ({
    name: key,
    type: typeOf(property, name + pascal(key), out),
    comment: comment(property, "    # "),
    isRequired: schema.required?.includes(key) === true,
  }));
  const doc = schema.description === undefined ? "" : `    """${sentence(schema.description)}"""\n\n`;
  const required = fields.filter((field) => field.isRequired);
  const optional = fields.filter((field) => !field.isRequired);
  if (optional.length === 0) return record(name, required, doc);
  if (required.length === 0) return record(name, optional, doc, true);
  // Python has NotRequired only since 3.11.
  const base = record(`_${name}`, required, "");
  if (!hasKeyword(optional)) return `${base}\n\nclass ${name}(_${name}, total=False):\n${doc}${lines(optional)}`;
  const more = record(`_${name}More`, optional, "", true);
  return `${base}\n\n${more}\n\nclass ${name}(_${name}, _${name}More):\n${doc || "    pass\n"}`;
}

function record(name: string, fields: Field[], doc: string, isPartial = false): string {
  if (!hasKeyword(fields)) return `class ${name}(TypedDict${isPartial ? ", total=False" : ""}):\n${doc}${lines(fields)}`;
  const entries = fields
    .map((field) => `${field.comment === "" ? "" : `    ${field.comment}`}        "${field.name}": ${field.type},\n`)
    .join("");
  const rest = isPartial ? "    total=False,\n" : "";
  return `${name} = TypedDict(  # one of its fields is a keyword\n    "${name}",\n    {\n${entries}    },\n${rest})\n`;
}

function hasKeyword(fields: Field[]): boolean {
  return fields.some((field) => KEYWORDS.has(field.name));
}

function lines(fields: Field[]): string {
  return fields.map((field) => `${field.comment}    ${field.name}: ${field.type}\n`).join("");
}

function typeOf(schema: Schema, place: string, out: Out, isAlias = false): string {
  if (schema.$ref !== undefined) return out.refer(schema.$ref.slice(PREFIX.length));
  if (schema.const !== undefined) return `Literal[${literal(schema.const)}]`;
  if (schema.enum !== undefined) {
    const choices = `Literal[${schema.enum.map(literal).join(", ")}]`;
    if (isAlias || schema.enum.length < LONG_ENUM) return choices;
    out.aliases.push(`${place} = ${choices}\n`);
    return out.refer(place);
  }
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return union(choices.map((choice) => typeOf(choice, formPlace(choice, choices, place), out)));
  if (Array.isArray(schema.type)) return union(schema.type.map((type) => typeOf({ ...schema, type }, place, out)));
  switch (schema.type) {
    case undefined:
      return "Any";
    case "integer":
      return "int";
    case "number":
      return "float";
    case "string":
      return "str";
    case "boolean":
      return "bool";
    case "null":
      return "None";
    case "array":
      return `List[${typeOf(schema.items ?? {}, place, out)}]`;
    case "object":
      return objectType(schema, place, out);
    default:
      throw new Error(`No Python for the JSON Schema type ${schema.type}.`);
  }
}

function objectType(schema: Schema, place: string, out: Out): string {
  if (!isRecord(schema)) {
    const rest = schema.additionalProperties;
    return `Dict[str, ${typeof rest === "object" ? typeOf(rest, `${place}Value`, out) : "Any"}]`;
  }
  out.classes.push(classOf(schema, place, out));
  return out.refer(place);
}

/** Forms of a choice are named after the field that only they have */
export function formPlace(choice: Schema, choices: Schema[], place: string): string {
  const others = choices.filter((other) => other !== choice).flatMap((other) => other.required ?? []);
  if (choices.filter(isRecord).length < 2) return place;
  const own = (choice.required ?? []).find((key) => !others.includes(key));
  return own === undefined ? place : place + pascal(own);
}

function union(types: string[]): string {
  const distinct = [...new Set(types)];
  if (distinct.includes("Any")) return "Any";
  const some = distinct.filter((type) => type !== "None");
  const inner = some.length === 1 ? (some[0] ?? "None") : `Union[${some.join(", ")}]`;
  return some.length === distinct.length ? inner : `Optional[${inner}]`;
}

function literal(value: unknown): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  return value === null ? "None" : JSON.stringify(value);
}

function pascal(key: string): string {
  return key.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function sentence(text: string): string {
  return `${text.replaceAll('"""', "'''").replace(/\.$/, "")}.`;
}

function comment(schema: Schema, start: string): string {
  const preset = schema.default === undefined ? "" : `(default ${literal(schema.default)})`;
  const text = [schema.description ?? "", preset].filter(Boolean).join(" ");
  return text === "" ? "" : `${start}${text.replaceAll("\n", " ")}\n`;
}
