// Schema validation with messages that name the invalid field.

import { NAME, QUALIFIED_NAME } from "@forkd/runtime/util/name";
import { ForkdError } from "@forkd/runtime/errors";
import type * as z from "zod";

const MAX_ISSUES = 10;
const NAME_PATTERNS: ReadonlySet<string> = new Set([String(NAME), String(QUALIFIED_NAME)]);
const NAME_SUFFIX_RULE = "must not end with .tmp";

export type Where = "params" | "query" | "body" | "message";

export function parse<T extends z.ZodType>(schema: T, value: unknown, where: Where): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw refusal(result.error.issues, where);
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

export function badRequest(broken: Broken[]): ForkdError {
  const text = broken.map(({ field, rule }) => `${field}: ${rule}`).join("; ");
  return new ForkdError("BAD_REQUEST", `Cannot accept the request: ${text}.`, { details: { issues: broken } });
}

/** Issues of the union branch that has the fewest */
function nearestBranch(issue: z.core.$ZodIssue): z.core.$ZodIssue[] {
  if (issue.code !== "invalid_union" || issue.errors.length === 0) return [issue];
  const [nearest = []] = issue.errors.toSorted((a, b) => a.length - b.length);
  return nearest.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] })).flatMap(nearestBranch);
}

function fieldOf(issue: z.core.$ZodIssue, where: Where): string {
  return issue.path.length === 0 ? where : issue.path.map(String).join(".").slice(0, 200);
}

/** The message never contains the value, which may be a secret */
function ruleOf(issue: z.core.$ZodIssue): string {
  if (issue.code === "unrecognized_keys") return `unknown field ${issue.keys.map((key) => JSON.stringify(key.slice(0, 80))).join(", ")}`;
  if (issue.code === "invalid_key") return issue.issues.map(ruleOf).join(", ");
  if (issue.message.endsWith("received undefined")) return "is required";
  return issue.message.replace(/^Invalid input: e/, "e");
}

function isNameRule(issue: z.core.$ZodIssue): boolean {
  if (issue.code === "custom") return issue.message === NAME_SUFFIX_RULE;
  return issue.code === "invalid_format" && issue.format === "regex" && NAME_PATTERNS.has(issue.pattern ?? "");
}
