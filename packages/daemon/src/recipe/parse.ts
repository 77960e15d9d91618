// Recipe parser; problems are reported with line and column.

import { isAlias, isMap, isNode, isPair, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import { ForkdError } from "@forkd/runtime/errors";
import { recipeSchema } from "./schema.ts";
import type { Document } from "yaml";
import type * as z from "zod";
import type { Recipe } from "./schema.ts";

const MAX_PROBLEMS = 10;
/** Larger sources are rejected before parsing, because they come from clients */
export const MAX_SOURCE_BYTES = 256 * 1024;
/** Limit after variable expansion: a long variable used often could fill the daemon's memory */
const MAX_EXPANDED = 8 * 1024 * 1024;
/** Lower case only: ${HOME} is left to the shell. $${name} is an escaped ${name} */
const VARIABLE = /(\$?)\$\{([a-z][a-z0-9_]*)\}/g;
const VARIABLE_NAME = /^[a-z][a-z0-9_]*$/;

type Path = readonly PropertyKey[];
type Problem = { path: Path; message: string; atKey?: string };
/** One entry of the error's `details.problems` */
type Located = { file: string; line: number; column: number; message: string };

export type ParsedRecipe = {
  recipe: Recipe;
  /** Error that reports a problem at this path */
  wrong: (path: Path, message: string) => ForkdError;
};

/** `file` is only used in messages; `set` overrides the defaults of variables */
export function parseRecipe(source: string, file: string, set: Record<string, string> = {}): ParsedRecipe {
  const lines = new LineCounter();
  if (Buffer.byteLength(source) > MAX_SOURCE_BYTES)
    throw errorOf([{ file, line: 1, column: 1, message: `must not be larger than ${MAX_SOURCE_BYTES} bytes` }]);
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false });
  const located = (offset: number, message: string): Located => {
    const { line, col } = lines.linePos(offset);
    return { file, line: line || 1, column: col || 1, message };
  };
  const describe = ({ path, message, atKey }: Problem): Located =>
    located(offsetOf(document, path, atKey), path.length > 0 ? `${path.join(".")}: ${message}` : message);

  if (document.errors.length > 0) throw errorOf(document.errors.map(({ pos, message }) => located(pos[0], message)));
  const problems: Problem[] = [];
  const value = withVariables(contentOf(document, located), set, problems);
  const parsed = recipeSchema.safeParse(value);
  if (!parsed.success) for (const issue of parsed.error.issues) problems.push(...problemsOf(issue, []));
  if (problems.length > 0 || !parsed.success) throw errorOf(problems.map(describe));
  return { recipe: parsed.data, wrong: (path, message) => errorOf([describe({ path, message })]) };
}

function contentOf(document: Document.Parsed, located: (offset: number, message: string) => Located): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // the YAML parser's limit of aliases
    if (!(error instanceof ReferenceError)) throw error;
    throw errorOf([located(0, "has too many aliases")]);
  }
}

function errorOf(problems: readonly Located[]): ForkdError {
  const shown = problems.slice(0, MAX_PROBLEMS);
  const more = problems.length > MAX_PROBLEMS ? [`… and ${problems.length - MAX_PROBLEMS} more`] : [];
  const text = shown.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`);
  return new ForkdError("RECIPE_INVALID", [...text, ...more].join("\n"), { details: { problems: shown } });
}

/** Expands variables in every string except the variables themselves and the name */
function withVariables(given: unknown, set: Record<string, string>, problems: Problem[]): unknown {
  if (!isRecord(given)) return given;
  const vars: Record<string, string> = {};
  for (const [name, value] of Object.entries(isRecord(given["vars"]) ? given["vars"] : {})) {
    if (!VARIABLE_NAME.test(name)) problems.push({ path: ["vars", name], message: "must be lower-case letters, digits and '_'" });
    else if (typeof value === "string" || typeof value === "number") vars[name] = String(value);
    else problems.push({ path: ["vars", name], message: "must be text or a number" });
  }
  for (const [name, value] of Object.entries(set)) {
    if (Object.hasOwn(vars, name)) vars[name] = value;
    else problems.push({ path: ["vars"], message: `there is no variable ${name} to set${known(vars)}` });
  }
  let expanded = 0;
  const replace = (value: unknown, path: Path): unknown => {
    if (Array.isArray(value)) return value.map((item, index) => replace(item, [...path, index]));
    if (isRecord(value)) return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replace(item, [...path, key])]));
    if (typeof value !== "string") return value;
    return value.replace(VARIABLE, (whole, escape: string, name: string) => {
      if (escape || expanded > MAX_EXPANDED) return whole.slice(1);
      const found = Object.hasOwn(vars, name) ? vars[name] : undefined;
      if (found === undefined)
        problems.push({
          path,
          message: `there is no variable ${name}${known(vars)}; add it to vars, or write $$\{${name}} for the text itself`,
        });
      expanded += found?.length ?? 0;
      if (expanded > MAX_EXPANDED) problems.push({ path, message: `the recipe is larger than ${MAX_EXPANDED} bytes with its variables` });
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

/** Of a union, only the problems of the best-matching alternative */
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

/** Offset of the value at a path; if it is missing, of the enclosing mapping */
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
