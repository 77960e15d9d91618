// The part of JSON Schema that spec/openapi.json uses: what is wrong with a value, in words.

export type Schema = { readonly [keyword: string]: unknown };

/** `format` comes with a pattern that says the same */
const IGNORED = new Set(["description", "default", "title", "format"]);
const KNOWN = new Set([
  "$ref",
  "type",
  "enum",
  "const",
  "anyOf",
  "oneOf",
  "properties",
  "required",
  "additionalProperties",
  "propertyNames",
  "items",
  "pattern",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
]);

export class SchemaChecker {
  readonly #document: Schema;

  constructor(document: Schema) {
    this.#document = document;
  }

  /** Empty: the value is valid. Fields that the schema does not name are wrong unless it allows them in so many words */
  problems(value: unknown, schema: Schema, at = "$"): string[] {
    const unknown = Object.keys(schema).filter((keyword) => !KNOWN.has(keyword) && !IGNORED.has(keyword));
    if (unknown.length > 0) throw new Error(`this checker does not know ${unknown.join(", ")} (at ${at})`);
    if (typeof schema["$ref"] === "string") return this.problems(value, this.resolve(schema["$ref"]), at);
    const choices = (schema["anyOf"] ?? schema["oneOf"]) as Schema[] | undefined;
    if (choices) return this.#choice(value, choices, schema["oneOf"] !== undefined, at);
    return [...this.#scalar(value, schema, at), ...this.#list(value, schema, at), ...this.#object(value, schema, at)];
  }

  resolve(ref: string): Schema {
    let found: unknown = this.#document;
    for (const part of ref.replace(/^#\//, "").split("/")) found = (found as Record<string, unknown> | undefined)?.[part];
    if (typeof found !== "object" || found === null) throw new Error(`${ref} names nothing`);
    return found as Schema;
  }

  #choice(value: unknown, choices: Schema[], exactlyOne: boolean, at: string): string[] {
    const results = choices.map((choice) => this.problems(value, choice, at));
    const valid = results.filter((problems) => problems.length === 0).length;
    if (valid === 1 || (valid > 1 && !exactlyOne)) return [];
    if (valid > 1) return [`${at}: ${valid} of the alternatives fit`];
    return results.toSorted((a, b) => a.length - b.length)[0] ?? [`${at}: there are no alternatives`];
  }

  #scalar(value: unknown, schema: Schema, at: string): string[] {
    const problems: string[] = [];
    const { type, pattern, minimum, maximum, exclusiveMinimum, minLength, maxLength } = schema;
    if (type !== undefined && ![type].flat().some((name) => isOfType(value, name))) return [`${at}: ${show(value)} is not ${show(type)}`];
    if ("const" in schema && value !== schema["const"]) problems.push(`${at}: ${show(value)} is not ${show(schema["const"])}`);
    if (Array.isArray(schema["enum"]) && !schema["enum"].includes(value)) problems.push(`${at}: ${show(value)} is none of the enum`);
    if (typeof value === "number") {
      if (typeof minimum === "number" && value < minimum) problems.push(`${at}: ${value} is below ${minimum}`);
      if (typeof maximum === "number" && value > maximum) problems.push(`${at}: ${value} is above ${maximum}`);
      if (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum)
        problems.push(`${at}: ${value} is not above ${exclusiveMinimum}`);
    }
    if (typeof value === "string") {
      if (typeof pattern === "string" && !new RegExp(pattern).test(value)) problems.push(`${at}: ${show(value)} breaks ${pattern}`);
      if (typeof minLength === "number" && value.length < minLength) problems.push(`${at}: is too short`);
      if (typeof maxLength === "number" && value.length > maxLength) problems.push(`${at}: is too long`);
    }
    return problems;
  }

  #list(value: unknown, schema: Schema, at: string): string[] {
    if (!Array.isArray(value)) return [];
    const { items, minItems, maxItems } = schema;
    const problems = items === undefined ? [] : value.flatMap((item, i) => this.problems(item, items as Schema, `${at}[${i}]`));
    if (typeof minItems === "number" && value.length < minItems) problems.push(`${at}: has too few items`);
    if (typeof maxItems === "number" && value.length > maxItems) problems.push(`${at}: has too many items`);
    return problems;
  }

  #object(value: unknown, schema: Schema, at: string): string[] {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
    const properties = (schema["properties"] ?? {}) as Record<string, Schema>;
    const required = (schema["required"] ?? []) as string[];
    const problems = required.filter((name) => !(name in value)).map((name) => `${at}: ${name} is missing`);
    const rest = schema["additionalProperties"] ?? schema["properties"] === undefined;
    for (const [name, item] of Object.entries(value)) {
      const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (own) problems.push(...this.problems(item, own, `${at}.${name}`));
      else if (rest === false) problems.push(`${at}: ${name} is not declared`);
      else if (typeof rest === "object") problems.push(...this.problems(item, rest as Schema, `${at}.${name}`));
      if (schema["propertyNames"]) problems.push(...this.problems(name, schema["propertyNames"] as Schema, `${at}.${name} (name)`));
    }
    return problems;
  }
}

function isOfType(value: unknown, type: unknown): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "undefined").slice(0, 120);
}
