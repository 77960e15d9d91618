// Validates values against spec/openapi.json. Unknown fields are errors unless the schema allows them explicitly.

import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";

export type Schema = { readonly [keyword: string]: unknown };

const PREFIX = "#/components/schemas/";

export class SchemaChecker {
  readonly #document: Schema;
  readonly #ajv = new Ajv2020({
    allErrors: true,
    // types are given as lists, and each format has an equivalent pattern
    allowUnionTypes: true,
    validateFormats: false,
    // a choice lists required fields that another part of the schema declares
    strictRequired: false,
  });
  readonly #compiled = new Map<string, ValidateFunction>();

  constructor(document: Schema) {
    this.#document = document;
    const { schemas } = document["components"] as { schemas: { [name: string]: Schema } };
    for (const [name, schema] of Object.entries(schemas)) this.#ajv.addSchema(closed(schema), name);
  }

  /** Returns an empty list if the value is valid */
  problems(value: unknown, schema: Schema): string[] {
    const key = JSON.stringify(schema);
    let validate = this.#compiled.get(key);
    if (validate === undefined) this.#compiled.set(key, (validate = this.#ajv.compile(closed(schema))));
    return validate(value) ? [] : (validate.errors ?? []).map((error) => describe(error, value));
  }

  resolve(ref: string): Schema {
    let found: unknown = this.#document;
    for (const part of ref.replace(/^#\//, "").split("/")) found = (found as Record<string, unknown> | undefined)?.[part];
    if (typeof found !== "object" || found === null) throw new Error(`${ref} names nothing`);
    return found as Schema;
  }
}

/**
 * Forbids unknown fields. The document leaves them open for future additions; this daemon must not send undocumented
 * ones
 */
function closed<T>(schema: T): T {
  if (Array.isArray(schema)) return schema.map((item: unknown) => closed(item)) as T;
  if (typeof schema !== "object" || schema === null) return schema;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(schema)) {
    copy[key] = key === "$ref" && typeof item === "string" ? item.replace(PREFIX, "") : closed(item as unknown);
  }
  const hasFields = typeof copy["properties"] === "object" && copy["type"] === "object";
  if (hasFields && copy["additionalProperties"] === undefined) copy["additionalProperties"] = false;
  return copy as T;
}

function describe({ instancePath, message, params }: ErrorObject, value: unknown): string {
  return `$${instancePath}: ${message} ${JSON.stringify(params)} in ${JSON.stringify(value)?.slice(0, 200)}`;
}
