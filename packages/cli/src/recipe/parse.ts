// The text of a recipe, checked: what is wrong is said with its line and column.

import { isAlias, isMap, isNode, isPair, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import { failure } from "../errors.ts";
import { recipeSchema } from "./schema.ts";

import type { Document } from "yaml";
import type * as z from "zod";
import type { Recipe } from "./schema.ts";

const HINT = "docs/recipes.md explains the format. Nothing was changed.";
const MAX_PROBLEMS = 10;
/** Lower case only: ${HOME} is the shell's. $${name} stays as ${name} */
const VARIABLE = /(\$?)\$\{([a-z][a-z0-9_]*)\}/g;
const VARIABLE_NAME = /^[a-z][a-z0-9_]*$/;

type Path = readonly PropertyKey[];
type Problem = { path: Path; message: string; atKey?: string };

export type ParsedRecipe = {
  recipe: Recipe;
  /** An error about what stands at this place */
  wrong: (path: Path, message: string) => Error;
};

/** `file` is only named in messages; `set` replaces defaults of variables */
export function parseRecipe(source: string, file: string, set: Record<string, string> = {}): ParsedRecipe {
  const lines = new LineCounter();
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false });
  const said = (offset: number, message: string): string => {
    const { line, col } = lines.linePos(offset);
    return `${file}:${line || 1}:${col || 1}: ${message}`;
  };
  const errorOf = (problems: readonly string[]): Error => {
    const more = problems.length > MAX_PROBLEMS ? [`… and ${problems.length - MAX_PROBLEMS} more`] : [];
    return failure("RECIPE_INVALID", [...problems.slice(0, MAX_PROBLEMS), ...more].join("\n"), HINT);
  };
  const describe = ({ path, message, atKey }: Problem): string =>
    said(offsetOf(document, path, atKey), path.length > 0 ? `${path.join(".")}: ${message}` : message);

  if (document.errors.length > 0) throw errorOf(document.errors.map(({ pos, message }) => said(pos[0], message)));
  const given: unknown = document.toJS();
  const problems: Problem[] = [];
  const value = withVariables(given, set, problems);
  const parsed = recipeSchema.safeParse(value);
  if (!parsed.success) for (const issue of parsed.error.issues) problems.push(...problemsOf(issue, []));
  if (problems.length > 0 || !parsed.success) throw errorOf(problems.map(describe));
  return { recipe: parsed.data, wrong: (path, message) => errorOf([describe({ path, message })]) };
}

/** Every text but the variables themselves and the name, with variables replaced */
function withVariables(given: unknown, set: Record<string, string>, problems: Problem[]): unknown {
  if (!isRecord(given)) return given;
  const vars: Record<string, string> = {};
  for (const [name, value] of Object.entries(isRecord(given["vars"]) ? given["vars"] : {})) {
    if (!VARIABLE_NAME.test(name)) problems.push({ path: ["vars", name], message: "must be small letters, digits and '_'" });
    else if (typeof value === "string" || typeof value === "number") vars[name] = String(value);
    else problems.push({ path: ["vars", name], message: "must be text or a number" });
  }
  for (const [name, value] of Object.entries(set)) {
    if (Object.hasOwn(vars, name)) vars[name] = value;
    else problems.push({ path: ["vars"], message: `there is no variable ${name} to set${known(vars)}` });
  }
  const replace = (value: unknown, path: Path): unknown => {
    if (Array.isArray(value)) return value.map((item, index) => replace(item, [...path, index]));
    if (isRecord(value)) return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replace(item, [...path, key])]));
    if (typeof value !== "string") return value;
    return value.replace(VARIABLE, (whole, escape: string, name: string) => {
      if (escape) return whole.slice(1);
      const found = Object.hasOwn(vars, name) ? vars[name] : undefined;
      if (found === undefined)
        problems.push({
          path,
          message: `there is no variable ${name}${known(vars)}; add it to vars, or write $$\{${name}} for the text itself`,
        });
      return found ?? whole;
    });
  };
  const entries = Object.entries(given).map(([key, value]) => [key, key === "vars" || key === "name" ? value : replace(value, [key])]);
  return {
    ...(Object.fromEntries(entries) as object),
    vars: given["vars"] === undefined || isRecord(given["vars"]) ? vars : given["vars"],
  };
}

function known(vars: Record<string, string>): string {
  const names = Object.keys(vars);
  return names.length === 0 ? "" : ` (there are ${names.join(", ")})`;
}

/** Of a union only the kind that comes nearest */
function problemsOf(issue: z.core.$ZodIssue, above: Path): Problem[] {
  const path = [...above, ...issue.path];
  if (issue.code === "unrecognized_keys")
    return issue.keys.map((key) => ({ path, atKey: key, message: `there is no field ${key}${path.length > 0 ? " here" : ""}` }));
  if (issue.code === "invalid_union") {
    const [nearest] = issue.errors.filter(
      ([first]) => (first?.path.length ?? 0) > 0 || first?.code === "too_small" || first?.code === "unrecognized_keys",
    );
    return nearest ? nearest.flatMap((inner) => problemsOf(inner, path)) : [{ path, message: issue.message }];
  }
  if (issue.code === "invalid_key") return [{ path, message: issue.issues[0]?.message ?? issue.message }];
  const isMissing = issue.code === "invalid_type" && issue.input === undefined && !issue.message.startsWith("must");
  return [{ path, message: isMissing ? "is missing" : issue.message }];
}

/** Where the value of a path begins; of what is missing, where that should be */
function offsetOf(document: Document.Parsed, path: Path, atKey: string | undefined): number {
  let node: unknown = document.contents;
  let offset = isNode(node) ? (node.range?.[0] ?? 0) : 0;
  for (const part of atKey === undefined ? path : [...path, atKey]) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.find((item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(part));
      if (!pair || !isScalar(pair.key)) return offset;
      offset = pair.key.range?.[0] ?? offset;
      node = pair.value;
    } else if (isSeq(node)) {
      const item = node.items[Number(part)];
      if (!isNode(item)) return offset;
      offset = item.range?.[0] ?? offset;
      node = item;
    } else return offset;
  }
  return offset;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
