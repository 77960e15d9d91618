// Executable parts of a TypeScript file: lines of code and branch arms.

import { stripTypeScriptTypes } from "node:module";
import { parseSync, Visitor } from "oxc-parser";

export type Source = {
  /** start and end offsets of each line of code */
  lines: { line: number; start: number; end: number }[];
  /** start offset of each arm */
  arms: number[];
};

/** Excludes lines of only brackets: V8 counts one after a `return` as not reached. Comments and types are blank */
const CODE = /[^\s()[\]{};,]/;

export function readSource(text: string): Source {
  // Node executes this text. Types are replaced by blanks, so offsets and lines match the file.
  const stripped = stripTypeScriptTypes(text);
  const { program, comments, errors } = parseSync("source.js", stripped, { sourceType: "module" });
  if (errors[0]) throw new Error(errors[0].message);
  let code = stripped;
  for (const { start, end } of comments) code = code.slice(0, start) + code.slice(start, end).replaceAll(/[^\n]/g, " ") + code.slice(end);
  const lines: Source["lines"] = [];
  let start = 0;
  for (const [at, content] of code.split("\n").entries()) {
    if (CODE.test(content)) lines.push({ line: at + 1, start: start + content.search(/\S/), end: start + content.trimEnd().length });
    start += content.length + 1;
  }
  const arms: number[] = [];
  // An `if` without `else` has one arm: V8 does not report where the other would be.
  new Visitor({
    IfStatement: ({ consequent, alternate }) => void arms.push(consequent.start, ...(alternate ? [alternate.start] : [])),
    ConditionalExpression: ({ consequent, alternate }) => void arms.push(consequent.start, alternate.start),
    LogicalExpression: ({ right }) => void arms.push(right.start),
    SwitchCase: ({ consequent }) => void arms.push(...consequent.slice(0, 1).map((statement) => statement.start)),
  }).visit(program);
  return { lines, arms };
}
