// JSON Schema of the API's types: what has an id becomes a component, everything else stays where it is used.

import * as z from "zod";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A request is described as it is sent (defaults may be left out), an answer as it arrives */
type Direction = "input" | "output";

const PREFIX = "#/components/schemas/";

/** Collects the components of everything that goes through it */
export class Schemas {
  private readonly found = { input: new Map<string, JsonObject>(), output: new Map<string, JsonObject>() };

  of(schema: z.ZodType, direction: Direction): JsonObject {
    // Inside an object even the schema itself becomes a component, when it has an id.
    const { $defs, properties } = z.toJSONSchema(z.object({ root: schema }), { io: direction }) as unknown as {
      $defs?: { [id: string]: JsonObject };
      properties: { root: JsonObject };
    };
    for (const [id, definition] of Object.entries($defs ?? {})) this.found[direction].set(id, tidy(definition, direction) as JsonObject);
    return tidy(properties.root, direction) as JsonObject;
  }

  /** All components by name, sorted */
  components(): JsonObject {
    const all = new Map<string, JsonObject>();
    for (const [id, definition] of [...this.found.input, ...this.found.output]) {
      const before = all.get(id);
      if (before !== undefined && JSON.stringify(before) !== JSON.stringify(definition)) {
        throw new Error(`${id} differs between requests and answers: give the two an id each.`);
      }
      all.set(id, definition);
    }
    return Object.fromEntries([...all].sort(([a], [b]) => (a < b ? -1 : 1)));
  }
}

/** Without what only zod needs: the dialect, the bounds of safe integers, and, in answers, the promise that no field will ever be added */
function tidy(value: Json, direction: Direction): Json {
  if (Array.isArray(value)) return value.map((item) => tidy(item, direction));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).filter(([key, item]) => {
    if (key === "$schema" || key === "id") return typeof item !== "string";
    if (key === "maximum") return item !== Number.MAX_SAFE_INTEGER;
    if (key === "minimum") return item !== Number.MIN_SAFE_INTEGER;
    return !(key === "additionalProperties" && item === false && direction === "output");
  });
  return Object.fromEntries(
    entries.map(([key, item]) => [
      key,
      key === "$ref" && typeof item === "string" ? item.replace("#/$defs/", PREFIX) : tidy(item, direction),
    ]),
  );
}
