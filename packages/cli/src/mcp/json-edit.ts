// Changes one member of an object in a JSON text, and no other byte. Comments and trailing commas are allowed: editors write them.

import { findNodeAtLocation, parse, parseTree, printParseErrorCode, type Node, type ParseError, type ParseOptions } from "jsonc-parser";

const OPTIONS: ParseOptions = { allowTrailingComma: true };

/** @throws SyntaxError with the first error of the text */
export function parseJson(text: string): unknown {
  const errors: ParseError[] = [];
  const value: unknown = parse(text, errors, OPTIONS);
  const [first] = errors;
  if (first === undefined) return value;
  const line = text.slice(0, first.offset).split("\n").length;
  throw new SyntaxError(`${printParseErrorCode(first.error)} in line ${line}`);
}

/** The text with a member of the object at `path` added or replaced */
export function putMember(text: string, path: string[], key: string, value: unknown): string {
  const root = parseTree(text, [], OPTIONS);
  const object = root && findNodeAtLocation(root, path);
  if (object?.type !== "object") throw new TypeError(`there is no object at /${path.join("/")}`);
  const step = /\n([ \t]+)"/.exec(text)?.[1] ?? "  ";
  const found = findNodeAtLocation(object, [key]);
  if (found) return splice(text, found, valueText(value, indentOf(text, found.parent ?? found), step));
  const last = object.children?.at(-1);
  if (last) {
    const indent = indentOf(text, last);
    const isOneLine = !text.slice(object.offset, last.offset).includes("\n");
    const before = isOneLine ? ", " : `,\n${indent}`;
    const end = { offset: last.offset + last.length, length: 0 };
    return splice(text, end, `${before}${JSON.stringify(key)}: ${valueText(value, indent, step)}`);
  }
  // Only white space and comments: a comment stays before the new member.
  const inside = text.slice(object.offset + 1, object.offset + object.length - 1).trimEnd();
  const outer = indentOf(text, object);
  const member = `${outer}${step}${JSON.stringify(key)}: ${valueText(value, outer + step, step)}`;
  return splice(text, { offset: object.offset + 1, length: object.length - 2 }, `${inside}\n${member}\n${outer}`);
}

/** Indentation of the line */
function indentOf(text: string, { offset }: Pick<Node, "offset">): string {
  const line = text.slice(text.lastIndexOf("\n", offset - 1) + 1, offset);
  return /^[ \t]*/.exec(line)?.[0] ?? "";
}

function valueText(value: unknown, indent: string, step: string): string {
  return JSON.stringify(value, undefined, step).replaceAll("\n", `\n${indent}`);
}

function splice(text: string, { offset, length }: Pick<Node, "offset" | "length">, insert: string): string {
  return text.slice(0, offset) + insert + text.slice(offset + length);
}
