// Validation of a request against its route.

import { badRequest, parse, type Where } from "../dispatch/parse.ts";
import type { Route } from "../api/route.ts";

const REPEATABLE = new Set(["metadata", "set"]);

type Raw = { params: unknown; query: unknown; body: unknown };

/** Validated input of a handler, untyped. Unknown fields are rejected */
export function validate(route: Route, raw: Raw): Raw {
  refuseRepeated(raw.query);
  return {
    params: route.params ? parse(route.params, raw.params, "params") : undefined,
    query: route.query ? parse(route.query, raw.query ?? {}, "query") : nothing(raw.query, "query", route),
    body: validateBody(route, raw.body),
  };
}

function validateBody(route: Route, body: unknown): unknown {
  if (route.body === "bytes") return body;
  return route.body ? parse(route.body, body ?? {}, "body") : nothing(body, "body", route);
}

/** A route without input accepts `{}`, which many clients send by default */
function nothing(value: unknown, where: Where, route: Route): undefined {
  if (value === undefined || value === null || route.scope === "none") return undefined;
  const field = typeof value === "object" && !Array.isArray(value) ? Object.keys(value)[0] : "";
  if (field === undefined) return undefined;
  const what = field === "" ? "there must be no body" : `unknown field ${JSON.stringify(field.slice(0, 80))}`;
  throw badRequest([{ field: where, rule: what }]);
}

function refuseRepeated(query: unknown): void {
  if (typeof query !== "object" || query === null) return;
  for (const [field, value] of Object.entries(query)) {
    if (Array.isArray(value) && !REPEATABLE.has(field)) throw badRequest([{ field: field.slice(0, 80), rule: "must be given once" }]);
  }
}
