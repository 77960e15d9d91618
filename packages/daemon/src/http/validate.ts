// Checks a request against its route, and says which field broke which rule.

import { NAME_PATTERN } from "../api/common.ts";
import { ForkdError } from "../errors.ts";
import type * as z from "zod";
import type { Route } from "../api/route.ts";

const MAX_ISSUES = 10;
const NAME_SUFFIX_RULE = "must not end with .tmp";
const REPEATABLE = "metadata";

type Raw = { params: unknown; query: unknown; body: unknown };
type Where = "params" | "query" | "body" | "message";

/** What handlers get, still without its types; unknown fields are refused, nothing is guessed */
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

export function parse<T extends z.ZodType>(schema: T, value: unknown, where: Where): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw refusal(result.error.issues, where);
}

/** A route that takes nothing still takes `{}`, which many clients send out of habit */
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
    if (Array.isArray(value) && field !== REPEATABLE) throw badRequest([{ field: field.slice(0, 80), rule: "must be given once" }]);
  }
}

type Broken = { field: string; rule: string };

function refusal(issues: z.core.$ZodIssue[], where: Where): ForkdError {
  const flat = issues.flatMap(nearestBranch).slice(0, MAX_ISSUES);
  const broken = flat.map((issue) => ({ field: fieldOf(issue, where), rule: ruleOf(issue) }));
  if (flat.every(isNameRule)) {
    const [first] = broken;
    return new ForkdError("BAD_NAME", `Cannot accept the request: ${first?.field}: ${first?.rule}.`, { details: { issues: broken } });
  }
  return badRequest(broken);
}

function badRequest(broken: Broken[]): ForkdError {
  const text = broken.map(({ field, rule }) => `${field}: ${rule}`).join("; ");
  return new ForkdError("BAD_REQUEST", `Cannot accept the request: ${text}.`, { details: { issues: broken } });
}

/** Of a choice, the branch that was missed by the least */
function nearestBranch(issue: z.core.$ZodIssue): z.core.$ZodIssue[] {
  if (issue.code !== "invalid_union" || issue.errors.length === 0) return [issue];
  const [nearest = []] = issue.errors.toSorted((a, b) => a.length - b.length);
  return nearest.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] })).flatMap(nearestBranch);
}

function fieldOf(issue: z.core.$ZodIssue, where: Where): string {
  return issue.path.length === 0 ? where : issue.path.map(String).join(".").slice(0, 200);
}

/** Values are never repeated: one of them may be a secret */
function ruleOf(issue: z.core.$ZodIssue): string {
  if (issue.code === "unrecognized_keys") return `unknown field ${issue.keys.map((key) => JSON.stringify(key.slice(0, 80))).join(", ")}`;
  if (issue.code === "invalid_key") return issue.issues.map(ruleOf).join(", ");
  if (issue.message.endsWith("received undefined")) return "is required";
  return issue.message.replace(/^Invalid input: e/, "e");
}

function isNameRule(issue: z.core.$ZodIssue): boolean {
  if (issue.code === "custom") return issue.message === NAME_SUFFIX_RULE;
  return issue.code === "invalid_format" && issue.format === "regex" && issue.pattern === String(NAME_PATTERN);
}
